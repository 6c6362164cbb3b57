"""The blocks of libssl that hold OpenSSL's contexts and connections."""
