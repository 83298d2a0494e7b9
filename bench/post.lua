-- For wrk: one POST, over and over. The environment says which: BENCH_BODY, and BENCH_HEADERS as "name: value" lines.
wrk.method = "POST"
wrk.path = "/mcp"
wrk.body = os.getenv "BENCH_BODY"
for name, value in os.getenv("BENCH_HEADERS"):gmatch "([^:\n]+): ([^\n]*)" do
  wrk.headers[name] = value
end

local bad = 0
function response(status)
  if status ~= 200 then
    bad = bad + 1
    if bad == 1 then
      io.stderr:write("bench: status ", status, "\n")
    end
  end
end
