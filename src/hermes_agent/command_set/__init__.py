"""What the slash commands do: one module for each thing they are about."""
