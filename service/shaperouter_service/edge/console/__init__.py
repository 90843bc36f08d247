"""The console: a page for people, at the root of the HTTP port."""
