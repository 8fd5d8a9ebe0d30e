"""Mail comes in over SMTP and LMTP."""
