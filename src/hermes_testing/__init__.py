"""The workshop: fakes and fixtures that tests, demo and plug-in authors share. No room imports it."""
