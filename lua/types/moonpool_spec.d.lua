---@meta
-- Types of the global names that a *_spec.lua beside the scripts has in addition to those of scripts, for editors (LuaLS). Never run.
error("moonpool_spec.d.lua holds types for editors: specs have these names without requiring anything")

--- Groups the specs of one situation.
---@param name string
---@param body fun()
function describe(name, body) end

--- Declares one spec: `body` fails if the promise in `name` does not hold.
---@param name string
---@param body fun()
function it(name, body) end

--- Runs before each `it` of this `describe`.
---@param body fun()
function before_each(body) end

--- Runs after each `it` of this `describe`, also after one that failed.
---@param body fun()
function after_each(body) end

---@class moonpool.spec.Result
---@field text string          The text items of the result, joined by line ends
---@field structured? any      The structured content, if the tool returned a table
---@field content table[]

--- `as`: the principal of the call, an id or { id, scopes, claims }; "anonymous" has no credentials; "local", the default, has all scopes.
---@class moonpool.spec.Options
---@field as? string|{ id: string, scopes?: string[], claims?: table }

--- Calls a tool as a client does, with checks by its schema. On failure returns nil and the reason that the model would read.
---@param name string
---@param arguments? table
---@param options? moonpool.spec.Options
---@return moonpool.spec.Result? result
---@return string? why
function call(name, arguments, options) end

--- Reads a resource. Returns nil and the reason if it is not found.
---@param uri string
---@param options? moonpool.spec.Options
---@return { text: string?, contents: table[] }? result
---@return string? why
function read(uri, options) end

--- Gets the messages of a prompt. Returns nil and the reason on failure.
---@param name string
---@param arguments? table<string, string>
---@param options? moonpool.spec.Options
---@return table[]? messages
---@return string? why
function get_prompt(name, arguments, options) end

--- Runs a job now. Returns nil and the reason on failure. One that listens gets the message, or nil as where messages were missed.
---@param name string
---@param message? string
---@param channel? string
---@return true? done
---@return any value
function run_job(name, message, channel) end

--- The names of the jobs that are due at the time of fake.time, sorted: those whose interval, or time of day, has come since fake.time was
--- first called, or since run_due_jobs ran them.
---@return string[] names
function due_jobs() end

---@class moonpool.JobRun
---@field name string
---@field done? true  Absent where it failed
---@field value? any  What it returned
---@field why? string  Why it failed

--- Runs the jobs that are due, each once, in the order of their names.
---@return moonpool.JobRun[] runs
function run_due_jobs() end

--- Runs one policy around a call whose handler is answer(args). Returns the policy's result; or nil and the reason.
---@param name string
---@param about { tool?: string, resource?: string, prompt?: string, upstream?: string, args?: table, as?: string|table }
---@param answer fun(args: table): any, string?
---@return any value
---@return string? why
function run_policy(name, about, answer) end

--- Runs the auth scripts for a request. Returns the principal; or nil and the reason if no script authenticates the request.
---@param request { headers?: table<string, string>, bearer?: string, method?: string, path?: string, peer?: string, address?: string }
---@return moonpool.Principal? principal
---@return string? why
function authenticate(request) end

--- Returns the notifications that the scripts sent to clients since the `it` began; with a method ("progress", "message", "tools/list_changed",
--- "resources/updated") only notifications of this method.
---@param method? string
---@return { method: string, params: table? }[] messages
function notified(method) end

---@class moonpool.spec.HttpAnswer
---@field status? integer
---@field headers? table<string, string>
---@field body? string
---@field json? any
---@field events? (string|{ event: string?, data: any, id: string?, after: number? })[]
---@field chunks? (string|table)[]     A string, or { string, after = seconds }
---@field after? number

---@class moonpool.spec.ExecAnswer
---@field status? integer
---@field signal? integer
---@field stdout? string
---@field stderr? string

--- Replaces the clock, HTTP servers, programs, files, environment and users by fakes, until the end of the spec.
---@class moonpool.lib.fake
fake = {}

--- Fakes HTTP answers, by "METHOD url" or url: a body, a status, a table, or a function that returns one of them, or nil and a reason.
--- `events` and `chunks` are
--- for http.stream; `after` seconds pass before the answer, or a chunk. A request without a fake answer fails. Returns the list of later
--- requests, which grows: method, url, headers, body.
---@param answers table<string, string|integer|moonpool.spec.HttpAnswer|fun(request: table): any, string?>
---@return table[] asked
function fake.http(answers) end

--- Sets every clock but os.clock to a time in seconds since 1970. `sleep` then advances the clocks and returns at once.
---@param seconds number
function fake.time(seconds) end

--- Fakes the variables that `env` reads, by name; false stands for a variable that is not set.
---@param values table<string, string|number|false>
function fake.env(values) end

--- Fakes the variables that `secret` reads, by name; false stands for a variable that is not set.
---@param values table<string, string|number|false>
function fake.secret(values) end

--- Fakes programs, by the command line or its beginning: their output, their status, a table, or a function that returns one of them, or
--- nil and a reason.
--- Returns the list of later commands, which grows: argv, stdin, env, cwd.
---@param answers table<string, string|integer|moonpool.spec.ExecAnswer|fun(command: table): any, string?>
---@return table[] ran
function fake.exec(answers) end

--- Fakes Redis servers, by the command or its beginning: a text, a number, a list, false for nil, { error = why }, or a function of the
--- command, a list of texts, that returns one of them, or nil and a reason. Returns the list of later commands, which grows.
---@param replies table<string, string|number|table|false|fun(command: string[]): any, string?>
---@return string[][] sent
function fake.redis(replies) end

--- Fakes PostgreSQL servers, by the statement or its beginning: a list of rows, the number of changed rows, { error = why, state = "23505" },
--- or a function of the SQL and the parameters that returns one of them. Returns the list of later statements, { sql, … }, which grows.
---@param results table<string, table|integer|fun(sql: string, params: any[]): any>
---@return table[] sent
function fake.postgres(results) end

--- Replaces the file system by these files, by path; a path that ends in "/" is a folder. Returns the table of files, in which files that
--- scripts write appear.
---@param files? table<string, string>
---@return table<string, string> files
function fake.fs(files) end

--- Fakes an upstream for `upstream "NAME"`, by the names of its tools and prompts and by the URIs of its resources: a text, a table, or a function of the
--- arguments that returns one of them, or nil and a reason. A call without a fake answer fails. Returns the list of later calls, which grows: method,
--- name, args.
---@param name string
---@param answers table<string, any>
---@return table[] asked
function fake.upstream(name, answers) end

--- Takes the numbers that scripts add to their metrics: they reach no /metrics. Returns the list of later ones, which grows: name, value, labels.
---@return { name: string, value: number, labels: table }[] added
function fake.metrics() end

--- Cancels the next `call`, `read` or `get_prompt` at its first wait, or at wait number `wait`, as a client would: it returns nil and
--- "cancelled" after its `<close>` handlers ran; as in `moonpool run`, they may wait. A use of a fake counts as a wait.
---@param wait? integer
function fake.cancel(wait) end

--- Sets the user's answers, by key: a table for call:elicit (false declines), a string for call:sample, a list for call:roots.
---@param answers table<string, any>
function fake.answers(answers) end

---@class moonpool.spec.Assert
---@overload fun<T>(value?: T, why?: any, ...: any): T, ...
---@field equal fun(expected: any, got: any, message?: string)
---@field same fun(expected: any, got: any, message?: string)        By contents
---@field truthy fun(got: any, message?: string)
---@field falsy fun(got: any, message?: string)
---@field is_nil fun(got: any, message?: string)
---@field contains fun(part: string, text: string, message?: string) Letter by letter
---@field error fun(body: fun(), part?: string)

--- Lua's own function, which returns its arguments or fails the spec, with functions that compare.
---@type moonpool.spec.Assert
assert = nil
