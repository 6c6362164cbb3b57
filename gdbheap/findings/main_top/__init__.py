"""The finding ``main-top``: free memory just below the program break."""
