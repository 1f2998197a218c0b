"""Tools: what the model can do. One file each; the registry is the same for ours and for plug-ins'."""
