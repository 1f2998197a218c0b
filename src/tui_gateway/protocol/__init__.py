"""The protocol as data: what a method or an event is (`schema`), and the tables of all of them."""
