-- Servers that people use, from npm and PyPI, which `./dev test servers` installs below build/servers: each by itself
-- directly and behind the gateway (spec/helpers/servers.lua).
-- `program`: the file of the package that starts it; `args`, `env`: what it is given; `call`: a tool and its arguments.
-- DIR in these texts is a folder with an empty Git repository. Most of the calls do what the tool is for; those of
-- servers that are for a service of the network say that it cannot be reached or does not know the key: the same as
-- directly.
-- `needs`: what pip installs beside the package, of which it names no version.
local KEY <const> = "x"

local npm = {
  { "@modelcontextprotocol/server-everything", "2026.8.31", call = { "get-sum", { a = 1, b = 2 } } },
  { "@modelcontextprotocol/server-filesystem", "2026.8.31", args = { "DIR" }, call = { "list_directory", { path = "DIR" } } },
  { "@modelcontextprotocol/server-memory", "2026.8.31", env = { MEMORY_FILE_PATH = "DIR/memory.json" }, call = { "search_nodes", { query = "x" } } },
  { "@modelcontextprotocol/server-sequential-thinking", "2026.8.31",
    call = { "sequentialthinking", { thought = "x", thoughtNumber = 1, totalThoughts = 1, nextThoughtNeeded = false } } },
  { "@modelcontextprotocol/server-github", "2025.4.8", call = { "get_issue", { owner = "a", repo = "b", issue_number = 1 } } },
  { "@modelcontextprotocol/server-gitlab", "2025.4.25", env = { GITLAB_PERSONAL_ACCESS_TOKEN = KEY }, call = { "search_repositories", { search = "x" } } },
  { "@modelcontextprotocol/server-slack", "2025.4.25", env = { SLACK_BOT_TOKEN = KEY, SLACK_TEAM_ID = "T1" }, call = { "slack_get_users", { limit = 1 } } },
  { "@modelcontextprotocol/server-google-maps", "0.6.2", env = { GOOGLE_MAPS_API_KEY = KEY }, call = { "maps_geocode", { address = "x" } } },
  { "@modelcontextprotocol/server-brave-search", "0.6.2", env = { BRAVE_API_KEY = KEY }, call = { "brave_web_search", { query = "x" } } },
  { "@playwright/mcp", "0.0.83", program = "cli.js", call = { "browser_tabs", { action = "nothing" } } },
  { "@upstash/context7-mcp", "4.1.1", env = { CONTEXT7_API_KEY = KEY }, call = { "resolve-library-id", { libraryName = "x", query = "x" } } },
  { "@notionhq/notion-mcp-server", "2.5.2", program = "bin/cli.mjs", env = { NOTION_TOKEN = "ntn_x" }, call = { "API-get-self", {} } },
  { "tavily-mcp", "0.2.22", program = "build/index.js", env = { TAVILY_API_KEY = KEY }, call = { "tavily_search", { query = "x" } } },
  { "@cyanheads/git-mcp-server", "2.15.3", call = { "git_status", { path = "DIR" } } },
  { "@antv/mcp-server-chart", "0.9.10", program = "build/index.js", call = { "generate_pie_chart", { data = { { category = "x", value = 1 } } } } },
  { "chrome-devtools-mcp", "1.11.0", program = "build/src/bin/chrome-devtools-mcp.js", args = { "--executablePath", "/nothing" },
    call = { "list_pages", {} } },
  { "figma-developer-mcp", "0.13.2", program = "dist/bin.js", args = { "--stdio", "--image-dir=DIR" }, env = { FIGMA_API_KEY = KEY },
    call = { "get_figma_data", { fileKey = "x" } } },
  { "@eslint/mcp", "0.3.13", program = "src/mcp-cli.js", call = { "lint-files", { filePaths = { "DIR/nothing.js" } } } },
  { "mongodb-mcp-server", "3.0.4", program = "dist/esm/index.js", env = { MDB_MCP_TELEMETRY = "disabled" }, call = { "list-databases", {} } },
  { "@browsermcp/mcp", "0.1.3", call = { "browser_snapshot", {} } },
  { "@hubspot/mcp-server", "0.4.0", env = { PRIVATE_APP_ACCESS_TOKEN = KEY }, call = { "hubspot-get-user-details", {} } },
  { "mcp-server-kubernetes", "4.1.7", call = { "kubectl_context", { operation = "list" } } },
  { "mcp-hello-world", "1.1.2", program = "build/stdio.js", call = { "add", { a = 1, b = 2 } } },
  { "time-mcp", "1.0.6", call = { "days_in_month", { date = "2028-02-01" } } },
  { "mcp-mermaid", "0.4.1", program = "build/index.js", call = { "generate_mermaid_diagram", { mermaid = "graph TD; A-->B", outputType = "mermaid" } } },
  { "@circleci/mcp-server-circleci", "0.20.0", env = { CIRCLECI_TOKEN = KEY }, call = { "list_followed_projects", { params = {} } } },
}

local pypi = {
  { "mcp-server-time", "2026.10.19", call = { "convert_time", { source_timezone = "UTC", time = "12:00", target_timezone = "Asia/Tokyo" } } },
  { "mcp-server-git", "2026.10.19", args = { "--repository", "DIR" }, call = { "git_status", { repo_path = "DIR" } } },
  { "mcp-server-fetch", "2026.10.24", call = { "fetch", { url = "http://127.0.0.1:1/" } } },
  { "mcp-server-sqlite", "2025.4.25", needs = "mcp==1.30.0", args = { "--db-path", "DIR/data.db" }, call = { "list_tables", {} } },
  { "mcp-server-calculator", "0.2.1", call = { "calculate", { expression = "6*7" } } },
  { "arxiv-mcp-server", "0.8.2", args = { "--storage-path", "DIR/papers" }, call = { "list_papers", {} } },
  { "awslabs.aws-documentation-mcp-server", "1.2.3", call = { "recommend", { url = "x" } } },
  { "duckduckgo-mcp-server", "0.7.0", call = { "fetch_content", { url = "http://127.0.0.1:1/" } } },
  { "excel-mcp-server", "2.2.2", args = { "stdio" }, call = { "list_workbooks", {} } },
  { "mysql_mcp_server", "0.4.4", env = { MYSQL_USER = "x", MYSQL_PASSWORD = "x", MYSQL_DATABASE = "x" }, call = { "execute_sql", { query = "select 1" } } },
  { "wikipedia-mcp", "2.0.1", call = { "search_wikipedia", { query = "x" } } },
}

return { npm = npm, pypi = pypi }
