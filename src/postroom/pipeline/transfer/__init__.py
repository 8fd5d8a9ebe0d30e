"""Import and export of mail files."""
