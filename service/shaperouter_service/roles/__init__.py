"""The roles of `shaperouterd`: router, worker, and both on one machine."""
