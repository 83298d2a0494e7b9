-- For wrk: one POST, over and over. The environment says which: BENCH_BODY, and BENCH_HEADERS as "name: value" lines.
wrk.method = "POST"
wrk.path = "/mcp"
wrk.body = os.getenv "BENCH_BODY"
for name, value in os.getenv("BENCH_HEADERS"):gmatch "([^:\n]+): ([^\n]*)" do
  wrk.headers[name] = value
end
