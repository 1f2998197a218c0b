"""The web: fetching pages, reading them, and searching.

Start with `client`, through which every request goes. `addresses` decides which addresses may be reached, `pages`
makes readable text of what came back (`page_worker` does that in a confined child process) and keeps it for the
conversation, `search` has the search engines. The tools are `web_extract` and `web_search`.
"""
