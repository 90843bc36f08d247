"""The commands of `shaperouterd`, one module each; `options` has the options they share."""
