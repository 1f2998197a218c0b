"""A web on this machine: `internet` has names, addresses and servers, `engines` has search engines that run there."""
