"""The finding ``small-views``: large buffers that only small views keep alive."""
