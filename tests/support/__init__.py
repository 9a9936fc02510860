"""What tests share: worlds, second paths, commands run for real."""
