"""Blob stores: files in a folder, objects in a bucket."""
