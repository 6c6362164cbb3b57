"""What blocks of C++ hold."""
