"""Commands of `shaperouterd` that are no roles: they read or change what workers keep on disk."""
