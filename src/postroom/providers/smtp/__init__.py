"""Mail over SMTP."""
