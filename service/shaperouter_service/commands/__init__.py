"""The commands of `shaperouterd`, one module each; options that several have are in `options`."""
