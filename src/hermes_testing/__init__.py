"""The workshop: the fakes and fixtures that our tests, our demo and plug-in authors share. No room imports it."""
