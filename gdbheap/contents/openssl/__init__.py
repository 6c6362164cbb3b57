"""OpenSSL's contexts and connections."""
