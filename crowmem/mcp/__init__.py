"""The memory as tools for agents: an MCP server over stdin and stdout that only reads.

`tools` does the work and knows no protocol, `server` makes it an MCP server, `pipes` carries the messages. The SDK is
imported by these last two only, so that nothing else of crowmem needs it or waits for it.
"""
