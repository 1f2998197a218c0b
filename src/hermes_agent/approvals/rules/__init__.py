"""What is known of programs and places: who needs the network, what is never done, what a path means."""
