"""Microsoft accounts over Microsoft Graph: client, provider and sender."""
