"""The contents of libssl: OpenSSL's contexts and connections."""
