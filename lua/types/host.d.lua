---@meta
-- The interface between C and the Lua library: every member of the table that `require "moonpool.host"` returns in lua/moonpool. Scripts
-- cannot access the table. core/lib and core/vm make it. What one module of lua/moonpool/lib alone uses may be declared there, by the same classes;
-- spec/house/host_spec.lua compares all of it with the binary. It is never run.
error("host.d.lua holds types for editors: lua/moonpool gets the table by require 'moonpool.host'")

---@class moonpool.host.Grant
---@field path string   The scripts that have the grant: "" for all, a folder that ends in '/', or a file
---@field net string[]
---@field read string[]
---@field write string[]
---@field run string[]
---@field env string[]
---@field store string[]
---@field line integer      Line of the grant in the configuration, 0 if there is none
---@field run_line integer  Line of the list `run`, 0 if there is none

--- One entry of `upstreams`, without its secrets
---@class moonpool.host.Upstream
---@field name string
---@field line integer          Line of the entry in the configuration
---@field kind "url"|"command"
---@field revision "auto"|"modern"|"legacy"|"sse"
---@field prefix string         Put before the names that clients see; may be ""
---@field asks string[]         What it may ask clients: "elicitation", "sampling", "roots", "none"
---@field only? string[]        Patterns of the upstream's own names
---@field hide? string[]
---@field rename? table<string, string>     The upstream's own name -> the name after the prefix
---@field describe? table<string, string>   The upstream's own name -> its description
---@field pass? string[]        Names of client headers that are sent on, in lower case
---@field per? "principal"|"session"|"call"|"gateway"   nil: auto
---@field auth? { kind: "client_credentials"|"exchange", issuer: string?, token_url: string?, client: string, secret: userdata, scope: string?, audience: string?, method: "auto"|"basic"|"post" }
---@field private boolean
---@field retry "read_only"|"hinted"|"never"
---@field has_instructions boolean Clients get the instructions of the upstream
---@field keeps_names boolean    Names stay that have characters which clients refuse
---@field wraps_uris boolean     Clients see URIs with the upstream's name before them
---@field longest integer       Limit of a name that clients see, in bytes
---@field calls integer
---@field waiting integer
---@field timeout_ms integer
---@field timeout_total_ms integer
---@field open_ms integer
---@field list_wait_ms integer
---@field refresh_ms integer

---@class moonpool.host.Url
---@field url string
---@field scheme string
---@field host string
---@field port integer
---@field path string

---@class moonpool.host.Event
---@field wait fun(self: moonpool.host.Event, seconds?: number): boolean  True once the event is set; false after `seconds`
---@field set fun(self: moonpool.host.Event)    Resumes the tasks that wait for the event
---@field clear fun(self: moonpool.host.Event)

---@class moonpool.host.Request
---@field method string
---@field url string
---@field headers string[]    "name: value"
---@field body? string
---@field most integer        Limit of the answer's body in bytes
---@field seconds number      Time limit of the whole request
---@field reach? table        The addresses that the request may connect to
---@field repeatable? boolean The request may be sent again on a new connection
---@field stream? boolean     The answer's body is read in pieces by http.read
---@field script? string      Path of the script that sends it: its connections leave descriptors to others; none: the gateway

---@class moonpool.host
local host = {}

---@class moonpool.host.script
---@field list { path: string, text: string }[]   The script files of this generation, sorted by path
---@field left_out string[]         Paths of the scripts that are left out at a start because they have errors
---@field libraries string[]      The global names of libraries of C: each is made by lua/moonpool/lib/NAME.lua
---@field is_first_load boolean    This Lua state is the first of the generation: only the first one logs warnings about scripts
---@field root string              The folder of the scripts
---@field trust_full boolean       Scripts get the whole standard library
---@field is_confined boolean      A replay for scripts that have the whole standard library otherwise
---@field has_specs boolean        This gateway runs the specs among the scripts
---@field is_replay boolean        This process replays recorded calls, and reaches nothing outside
---@field is_clustered boolean     What several gateways share is in the server of `cluster`; specs and replays have all of it in their process
---@field is_apart boolean         This process serves one command of the workbench: no job of scripts begins by itself
host.script = {}

---@class moonpool.host.rock
---@field folder? string            The folder of the rocks' Lua files; nil without scripts.rocks
---@field c_folder? string        The folder of the rocks' C modules
host.rock = {}

---@class moonpool.host.config
---@field folder string            Where relative paths of grants begin: absolute, without symbolic links
---@field name? string      The configuration's file, for messages; nil: moonpool.yaml
---@field server { name: string, version: string, instructions: string? }   serverInfo
---@field resources? string[]      The URLs of the MCP endpoints as clients use them; nil without `public_url`
---@field grants moonpool.host.Grant[]
---@field audit? string            "none", "names", "redacted" or "full"; nil: there is no audit
---@field cluster? { name: string, url: string, password: string?, timeout: number, listens: boolean, sentinels: string[], limits: string, quotas: string, beat_ms: integer, task_again_ms: integer }   nil: this gateway is alone
---@field sign_in? { provider: string, documents: boolean, passwords: string?, issuer: string?, client: string?, secret: string?, ask: string[]?, scopes: string[]?, authorize_url: string?, token_url: string?, user_url: string?, public_url: string, prefix: string?, access: number, refresh: number, idle: number, unchecked: number, fresh: integer, grace: integer, allow: { users: string[]?, emails: string[]?, groups: string[]?, roles: string[]?, tenants: string[]? } }   nil: nobody signs in at this gateway
---@field auth_disabled boolean      Authentication is disabled: auth scripts load, but do not run
---@field is_exposed boolean         Other machines can reach a listener, perhaps through a proxy
---@field upstreams moonpool.host.Upstream[]   In the order of the file
---@field upstream_lock? string        The approved definitions, a line each: name, kind, key and hash between tabs; nil: there is no such file
---@field upstream_lock_path? string
---@field upstream_names string[]   In the order of the file, also where there is no upstream because recorded calls are replayed
host.config = {}

---@class moonpool.host.limits
---@field upstreams { answer: integer, queue: integer, list_items: integer, name: integer, keep: number, list_bytes: integer, list_pages: integer, definition: integer, links: integer, links_per_upstream: integer, subscribed: integer, subscribed_per_principal: integer, subscribed_tasks: integer, rounds: integer, questions_per_result: integer, questions_per_request: integer, links_per_result: integer, journal: integer, caller_tokens: integer, questions: integer, questions_per_principal: integer, pending: number }   limits.upstreams
---@field listed integer      number of resources that the list function of one template may return
---@field task_seconds number   tasks.ttl
---@field call_seconds number   limits.call.time
---@field stream_queue integer  limits.stream_queue
---@field page integer  limits.page
---@field http { time: number, body: integer }     Seconds, and bytes of an answer's body
---@field exec { time: number, output: integer }   Seconds, and bytes of output
---@field sqlite_databases integer      databases that one worker has open
host.limits = {}

---@class moonpool.host.metrics
---@field limit integer  limit of the series that scripts declare together
host.metrics = {}

--- The metrics of the tool with this name, the same over reloads.
---@param name string
---@return lightuserdata
function host.metrics.tool(name) end

---@class moonpool.host.trace
host.trace = {}

--- A span that holds nothing, for scripts where the call is not recorded.
---@return moonpool.host.span
function host.trace.idle() end

--- The id of the trace; nil where the call is not recorded.
---@return string?
function host.trace.id() end

---@class moonpool.host.span

--- Begins a span; nil where the call is not recorded. `detail` is appended to the name.
---@param name string
---@param detail? string
---@param is_client? boolean   The span is a request to another program
---@return moonpool.host.span?
function host.trace.begin(name, detail, is_client) end

---@param span moonpool.host.span
function host.trace.finish(span) end

---@param span moonpool.host.span
---@param key string
---@param value string|number|boolean
function host.trace.set(span, key, value) end

--- Sets the status ERROR.
---@param span moonpool.host.span
---@param type? string
---@param message? string
function host.trace.fail(span, type, message) end

--- traceparent and tracestate for a request to an upstream; nil where none are sent.
---@param span? moonpool.host.span
---@return string?, string?
function host.trace.context(span) end

--- The metrics of the prompt with this name, the same over reloads.
---@param name string
---@return lightuserdata
function host.metrics.prompt(name) end

--- The metrics of the resource or template with this name, the same over reloads.
---@param name string
---@return lightuserdata
function host.metrics.resource(name) end

--- What was measured of a tool, prompt or resource: how many calls have ended, how many of them failed, the times that half and 99 % of the calls of a
--- tool did not exceed, and the last failures, newest first.
---@param kind "tool"|"prompt"|"resource"
---@param name string
---@return { calls: integer, errors: integer, p50_ms: number?, p99_ms: number?, failures: { call: string, at: integer, outcome: string, code: integer, ms: number }[] }
function host.metrics.numbers(kind, name) end

--- The number of a series: the family's name, then the values of its labels.
---@param family "auth"|"http"|"sqlite"|"redis"|"cluster"|"exec"|"policy"
---@param ... string
---@return integer
function host.metrics.series(family, ...) end

--- Adds one observation to a series of a histogram.
---@param series integer
---@param seconds number
function host.metrics.observe(series, seconds) end

--- Adds one to a series of a counter.
---@param series integer
function host.metrics.count(series) end

--- The family of a metric that a script declares, one for all Lua states and over reloads. Only while scripts load.
---@param kind "counter"|"gauge"|"histogram"
---@param name string
---@param text string
---@param labels string[]
---@param bounds? number[]
---@return lightuserdata? family
---@return string? why
---@return string? hint
function host.metrics.declare(kind, name, text, labels, bounds) end

--- The number of the series of a declared family with these values of its labels; above `most` series that of _other.
---@param family lightuserdata
---@param values string[]
---@param most integer
---@return integer
function host.metrics.member(family, values, most) end

--- Adds to a counter or gauge, sets a gauge, or adds an observation to a histogram.
---@param family lightuserdata
---@param series integer
---@param value number
---@param is_set boolean
function host.metrics.enter(family, series, value, is_set) end

---@class moonpool.host.hooks
host.hooks = {}

---@class moonpool.host.answers
host.answers = {}

---@class moonpool.host.auth
host.auth = {}

---@class moonpool.host.base64
host.base64 = {}

---@class moonpool.host.bus
host.bus = {}

---@class moonpool.host.call
---@field methods table<string, function>   The methods of `call`: C makes `progress` and `send`, the Lua library adds the others
host.call = {}

---@class moonpool.host.cjson
host.cjson = {}

---@class moonpool.host.digest
host.digest = {}

---@class moonpool.host.env
host.env = {}

---@class moonpool.host.fs
host.fs = {}

---@class moonpool.host.http
host.http = {}

---@class moonpool.host.job
host.job = {}

---@class moonpool.host.log
host.log = {}

---@class moonpool.host.plan
host.plan = {}
---@class moonpool.host.forward
host.forward = {}

---@class moonpool.host.policy
host.policy = {}

---@class moonpool.host.random
host.random = {}

---@class moonpool.host.record
host.record = {}

---@class moonpool.host.seal
host.seal = {}

---@class moonpool.host.secret
host.secret = {}

---@class moonpool.host.semaphore
host.semaphore = {}

---@class moonpool.host.session
host.session = {}

---@class moonpool.host.sqlite
host.sqlite = {}

---@class moonpool.host.store
host.store = {}

---@class moonpool.host.task
host.task = {}

---@class moonpool.host.time
host.time = {}

---@class moonpool.host.topic
host.topic = {}

-- -- loading (core/vm/load.c) ------------------------------------------------------------------------------------------

--- Compiles Lua source. `ms` limits the processor time of compiling.
---@param text string
---@param chunkname string
---@param env? table
---@param ms? integer
---@return function? chunk
---@return string? why
---@return string? hint
function host.script.load(text, chunkname, env, ms) end

--- xpcall within the time for loading that is left.
---@param f function
---@param handler function
---@return boolean, any ...
function host.script.guarded(f, handler, ...) end

--- xpcall within 50 ms of processor time.
---@param f function
---@param handler function
---@return boolean, any ...
function host.script.briefly(f, handler, ...) end

---@return boolean is_late  True once the time for loading is used up
---@return number seconds   The time for loading
function host.script.is_late() end

-- -- errors that end a task (core/vm/protect.c) ------------------------------------------------------------------------

--- True if no living process made this id of a task, or its process has another uid than this: the task does not run any more.
---@param id string
---@param uid? string
---@return boolean
function host.task.is_orphan(id) end

--- True if the value is an error that ends a task or a coroutine. No script can catch such an error.
---@param value any
---@return boolean
function host.task.is_ending(value) end

--- pcall and xpcall for scripts. They pass on errors of the kind `input`.
---@param input any
---@return function pcall
---@return function xpcall
function host.script.protections(input) end

-- -- between the workers (core/vm/bus.c) -------------------------------------------------------------------------------

--- Sends a message to every VM of the process, also to the sender. Each VM handles it before the tasks of its next turn.
---@param topic string
---@param text string
---@return boolean fits  false: too much waits for one of the VMs, which gets a message with the topic "missed" instead
function host.bus.broadcast(topic, text) end

--- Sends the message "order" to the process of the gateway that runs a task, after an upgrade (core/rpc/transport/hop/errands.c).
---@param id string  of the task
---@param text? string  nil: nothing is sent
---@return boolean? sent  nil: no other living process made the id; false: it cannot be sent
function host.bus.send_on(id, text) end
--- Sends a message to one VM of each other process of the gateway, which handles it as one of the bus. Does nothing where there is no other process.
---@param topic string
---@param text string
---@param unless? table  nothing is sent if it has a field is_over
---@return boolean fits  false: it is too large, or too much waits; each other process then gets a message with the topic "lost elsewhere"
function host.bus.relay(topic, text, unless) end

-- -- records of calls, for `moonpool replay` ---------------------------------------------------------------------------

--- Keeps the JSON of a recorded call.
---@param line string
---@param what boolean|"skipped"  true: some of the call is missing; "skipped": all of it is, and the line says why
function host.record.put(line, what) end

--- True if a call of this tool is to be recorded. It counts as one of a recording that an operator has begun.
---@param tool string
---@return boolean
function host.record.claim(tool) end

--- The bytes that one recorded call may have.
---@return integer
function host.record.room() end

--- The text with another one in the place of each occurrence of a value, in a time linear in the length of the text.
---@param text string
---@param value string
---@param with string
---@return string
function host.record.replace(text, value, with) end

-- -- time, random bytes, the environment -------------------------------------------------------------------------------

--- Parks the task. With zero or a negative number it lets other tasks run first.
---@param seconds number
---@param is_real? boolean  The clocks of specs do not change this sleep
function host.time.sleep(seconds, is_real) end

---@return number seconds  The time of the monotonic clock
function host.time.now() end

---@return number seconds  The time of a monotonic clock that runs on while the machine is suspended
function host.time.boot() end

---@return number seconds  Since 1970
function host.time.clock() end

--- The number of insertions, deletions, replacements and swaps of adjacent bytes that make one word of the other, in any case of letters.
---@param a string  At most 64 bytes; the distance of longer ones is over two thousand million
---@param b string
---@return integer
function host.script.edit_distance(a, b) end

---@param n integer  At most 65536
---@return string bytes
function host.random.bytes(n) end

--- A function like math.random with a state of its own, seeded by the kernel.
---@return function
function host.random.generator() end

--- A new id for a task: 36 hex digits, which nobody can guess, and from which this gateway knows the process that runs the task.
--- The store counts the tasks with the ids of one owner together.
---@param owner? string
---@return string
function host.random.id(owner) end

---@param name string
---@return string?
function host.env.get(name) end

---@param path string  Relative to host.rock.folder
---@return string? text  Of this file of a rock
function host.rock.read(path) end

---@param path string  Relative to host.rock.c_folder, without ".so"
---@return string? whole_path  Of the C module; nil if it does not exist
function host.rock.c_module(path) end

-- -- log and audit -----------------------------------------------------------------------------------------------------

---@param level moonpool.Level
---@param event string
---@param fields? table<string, any>
---@param is_script? boolean  A script has chosen the event: it is none of the gateway's, whatever its words are
function host.log.write(level, event, fields, is_script) end

--- True if the log writes lines of this level.
---@param level moonpool.Level
---@return boolean
function host.log.wants(level) end

---@param members string  An entry of the audit log: JSON members without the braces
function host.log.audit(members) end

-- -- calls (core/lib/work/call.c) --------------------------------------------------------------------------------------

--- Opens a session for the call `initialize`. Returns true; or nil after C has answered the call with an error.
---@param call moonpool.Call
---@param revision string
---@param client? string        JSON
---@param capabilities? string  JSON
---@return boolean?
function host.session.open(call, revision, client, capabilities) end

--- Waits until the store's file has the session that was opened for the call, if sessions are kept over a restart.
---@param call moonpool.Call
function host.session.settle(call) end

---@param call moonpool.Call
---@return string?  The id of the call's session
function host.session.id(call) end

---@param call moonpool.Call
---@param level integer  0 (debug) to 7 (emergency)
function host.session.set_log_level(call, level) end

---@param call moonpool.Call
---@return integer?  0 to 7; nil without a session, or before the client set a level
function host.session.log_level(call) end

--- Sets `call.task` to the id of an MCP task.
---@param call moonpool.Call
---@param id string
function host.call.name_task(call, id) end
--- Of a call by an operator through the admin listener: the caller as the audit names it, and true for a question of a page of the gateway's own. Nil for
--- a call of a client.
---@param call moonpool.Call
---@return string? caller, boolean? is_hidden
function host.call.operator(call) end

--- The call runs the tool that has these metrics.
---@param call moonpool.Call
---@param metrics lightuserdata
function host.call.measure(call, metrics) end

--- Removes the time limit of the call.
---@param call moonpool.Call
function host.call.clear_deadline(call) end

--- The result of the call is one that an upstream gave: it may be as large as limits.upstreams.answer.
---@param call moonpool.Call
function host.call.forwards(call) end

--- Counts a fault of a script. The Lua library has logged the fault.
function host.call.count_fault() end

--- Adds a challenge to the error that will answer the call. Returns false if the answer was already sent.
---@param call moonpool.Call
---@param needed string   What the call lacks, for the log
---@param asked string    What the client is to ask its issuer for
---@return boolean
function host.call.forbid(call, needed, asked) end

--- Adds Retry-After to the error that will answer the call. Returns false if the answer was already sent.
---@param call moonpool.Call
---@param seconds integer
---@return boolean
function host.call.retry_after(call, seconds) end

--- Counts a call that a policy refused because of its rate.
function host.call.count_limited() end

--- Counts a question of an upstream that was refused because of its rate.
function host.call.count_question() end

--- Counts a template whose list function gave more than host.limits.listed.
function host.call.count_listed() end

--- If `size` bytes of JSON exceed limits.call.output, counts and logs it and returns the text of the error; else returns nil.
---@param call moonpool.Call
---@param what string
---@param size integer
---@return string?
function host.call.over_output(call, what, size) end

--- The call for which the running task works; nil while scripts load.
---@return moonpool.Call?
function host.call.current() end

--- Replaces the call's principal, for specs. nil restores the principal that authentication gave.
---@param call moonpool.Call
---@param principal? moonpool.Principal
function host.call.set_principal(call, principal) end

--- Set by the Lua library, called by C: makes the principal for an id.
---@param id string
---@return moonpool.Principal
function host.hooks.principal(id) end

--- Set by the Lua library, called by C: makes the principal of a call by an operator from JSON: { id, scopes, claims }.
---@param text string
---@return moonpool.Principal
function host.hooks.described_principal(text) end

--- Set by the Lua library, called by C: makes a read-only view of a value that a client sent.
---@param value any
---@param what string
---@return any
function host.hooks.view(value, what) end

-- -- the request and the client of a call (core/lib/work/client_request.c) ---------------------------------------------

--- Returns the value of a request header, and how often the request has it: nil, 0 if absent; nil, nil if the request has ended.
---@param call moonpool.Call
---@param name string  In lower case
---@return string? value
---@return integer? count
function host.call.header(call, name) end

-- -- routes to upstreams (core/lib/shortcut/forward_routes.c) ----------------------------------------------------------

--- Turns the quick way of calls to upstreams on.
---@param take_over fun(tool: table, exchange: userdata, channel: userdata, call: moonpool.Call, id: integer, revision: string): any, table?  Goes on with a call
---@param run_policies fun(tool: table, call: moonpool.Call, revision: string): any, table?  Serves a call of a tool that has policies
---@param names { client: string, server: string }  JSON: the gateway as client and as server
---@param steps table<string, { is_base?: boolean, has_objects?: boolean, has_none?: boolean, is_text_alone?: boolean }>  By the revision of the client
function host.forward.set(take_over, run_policies, names, steps) end

--- While it is true, all calls of federated tools take the general way.
---@param is_suspended boolean
function host.forward.suspend(is_suspended) end

---@class moonpool.Route
---@field generation integer     Of the snapshot to which the tool and the bits of its scopes belong
---@field name string
---@field upstream string
---@field original string        The upstream's own name of the tool
---@field json_name string       The same as JSON
---@field header string          The line Mcp-Name
---@field definition? string     For the audit: the hash of the definition, and of the approved one
---@field approved? string
---@field scopes integer         Bits of the scopes that the tool requires
---@field may_be_task? boolean   The upstream can run the tool as an MCP task
---@field has_policies? boolean
---@field pass string[]          Headers of the client that the upstream gets, at most 16

---@class moonpool.RouteClient
---@field key string               The key of the channel
---@field able string              JSON: the capabilities that a stateless upstream is told
---@field able_to_wait string      The same, with that of waiting for tasks
---@field can_have_task? boolean   The client can have an MCP task; its calls of such tools take the general way
---@field takes_questions? boolean The upstream may ask it in the middle of a call

--- Later plain calls of the tool by the client of the call take the quick way. Nothing happens if this call was not a plain one.
---@param call moonpool.Call
---@param tool table        Has the member metrics
---@param route moonpool.Route
---@param client moonpool.RouteClient
function host.forward.learn(call, tool, route, client) end

--- Sends a plain call to its upstream, and waits, for the policies of its tool. Nothing: it was not sent. Else the result in the base revision, as JSON,
--- the key of the channel, and whether the client can be asked something; or nil, the exchange, the channel and the id, where Lua has to go on.
---@param call moonpool.Call
---@param arguments? string  JSON; nil: those of the client
---@return string? result, string|userdata|nil key_or_exchange, userdata|boolean|nil channel, integer? id
function host.forward.call(call, arguments) end

-- -- call plans (core/lib/shortcut/plan.c) -----------------------------------------------------------------------------

--- What ends a planned call: finish(tool, revision, call, ok, …); the same for calls with an audit line; refuse(tool, arguments, why) gives why
--- arguments do not fit, for the client and for the audit, or nothing if they do; refuse_some(tool, list, missing, unknown) the same for what C has found; the message handler of tools; and by revision the JSON around the values of results: { text = { before, after }, object = { before the text, before the value, after }, other = … }.
---@param finish function
---@param finish_audited function?  nil: there is no audit
---@param refuse function
---@param refuse_some function
---@param handler function
---@param frames table<string, table>
function host.plan.set_ends(finish, finish_audited, refuse, refuse_some, handler, frames) end

--- Tells C what the principal of a call may do in the snapshot of a generation.
---@param call moonpool.Call
---@param generation integer
---@param scopes integer    A bit for each scope that call plans require: whether the principal holds it
---@param audience string   The audience of the principal's sessions
function host.plan.set_rights(call, generation, scopes, audience) end

--- Gives C the functions that runs of policies need of the library: field(call, name), decoded(call), set(turn, name, value), series(row, decision),
--- decision(err), concerns(row, uri), is_silent(row) and span(row).
---@param helpers table<string, function>
function host.policy.begin(helpers) end

--- The function that runs calls of a thing through policies.
---@param way { kind: string, name: string?, upstream: string?, phase: "prepare"|"run"|nil, rows: table[], inner: function, checked: function, is_later: boolean? }
---@return fun(args: table?, call: moonpool.Call, uri: string?): ...
function host.policy.around(way) end

--- The call as a policy sees it, of no run.
---@param way table
---@param args table
---@param call moonpool.Call
---@param uri? string
---@return moonpool.host.turn
function host.policy.turn(way, args, call, uri) end

---@class moonpool.host.turn

--- The arguments as the policies have left them.
---@param turn moonpool.host.turn
---@return any
function host.policy.args(turn) end

--- A policy replaces the arguments.
---@param turn moonpool.host.turn
---@param args any
function host.policy.set_args(turn, args) end

--- For the audit: the name of the policy that decided last, nil if none has, and whether all let the call through; nothing of a call without policies.
---@param call moonpool.Call
---@return string?, boolean?
function host.policy.trail(call) end

--- The handler of a call runs a second time, as the body of a task.
---@param call moonpool.Call
function host.policy.resume(call) end

--- Begins the audit line of a call (core/lib/shortcut/audit_line.h).
---@param call moonpool.Call
---@param facts table  The texts of mp_audit_facts, by their names; others are passed over
function host.call.audit_begin(call, facts) end

--- Writes the audit line that was begun for a call. Does nothing if the line was written.
---@param call moonpool.Call
---@param outcome string
---@param code? integer     The code of a JSON-RPC error
---@param why? string
---@param policy? string
---@param channel? string   Of the upstream to which the call was sent last
---@param retries? integer  How often it was sent again
function host.call.audit_end(call, outcome, code, why, policy, channel, retries) end

--- The mark of a call, 16 hexadecimal digits, which its lines of the log and of the audit have; nil for a call that ended without a mark. And the id of its trace, if the call is traced.
---@param call moonpool.Call
---@return string? mark
---@return string? trace
function host.call.mark(call) end

--- The params of a call, decoded anew; nil if it has none, or has ended.
---@param call moonpool.Call
---@param is_text? boolean   Their JSON text instead
---@return any params
function host.call.params(call, is_text) end

--- Sets the time limit of the call.
---@param call moonpool.Call
---@param seconds number
function host.call.set_deadline(call, seconds) end

--- The call may run Lua for so much longer than `limits.call.cpu`, and for as long again at most.
---@param call moonpool.Call
---@param seconds number
function host.call.allow_cpu(call, seconds) end

--- Closes the client's connection while the call goes on. False if the client could not resume its stream.
---@param call moonpool.Call
---@param ms number  After how many milliseconds the client is to reconnect
---@return boolean
function host.call.detach(call, ms) end

--- Sends a request to the client on the call's stream, and parks. Returns its result; nil and the client's error; or false if the request
--- cannot be sent.
---@param call moonpool.Call
---@param method string
---@param params table
---@return any result
---@return table? error  { code, message, data }
function host.call.ask(call, method, params) end

---@class moonpool.host.Question   A request to the client; withdrawn when the task ends
---@field answer fun(self: moonpool.host.Question): string?, boolean?   JSON of the client's result, or of its error and true; nothing before it has answered
---@field withdraw fun(self: moonpool.host.Question)   The client need not answer any more

--- Sends a request to the client on the call's stream, and does not wait: its answer sets the signal. False if the request cannot be sent.
---@param call moonpool.Call
---@param method string
---@param params table
---@param signal moonpool.host.Event
---@return moonpool.host.Question|false
function host.call.question(call, method, params, signal) end

--- Cancels the requests of host.call.ask that the client has not answered: each host.call.ask returns nil and an error.
---@param call moonpool.Call
function host.call.withdraw(call) end

-- -- subscriptions (core/lib/pubsub.c) ---------------------------------------------------------------------------------

---@param call moonpool.Call
---@return string  The request's id as JSON
function host.call.id(call) end

--- Subscribes the call's session to a topic: true; or nil and "no session", "too many" or "no room".
---@param call moonpool.Call
---@param topic string
---@param is_asked? boolean  The client has chosen the topic: its bytes are counted
---@return boolean? ok
---@return string? why
function host.session.subscribe(call, topic, is_asked) end

--- Sets the audience of all subscriptions of the call's session.
---@param call moonpool.Call
---@param audience string
function host.session.set_audience(call, audience) end

--- Topics of the call's session that begin with `prefix`, if an earlier process has opened the session, as of host.topic.revived.
---@param call moonpool.Call
---@param prefix string
---@return string[] lines
function host.session.revived(call, prefix) end

---@param call moonpool.Call
---@param topic string
function host.session.unsubscribe(call, topic) end

--- Notifies the subscribers of a topic in all workers. Of several notifications of one topic in a turn only the last one is sent.
---@param topic string
---@param plain? string   The JSON text for subscribed sessions
---@param before? string  The JSON text for calls of subscriptions/listen is before .. id .. after
---@param after? string
---@param unless? { is_over?: boolean }  Nothing is sent if is_over is set
function host.topic.publish(topic, plain, before, after, unless) end

---@param topic string
---@return string[] audiences  The audiences of the topic's subscribers, without duplicates
function host.topic.audiences(topic) end

---@param prefix string
---@param from? integer
---@return string[] names   Of topics with subscribers that begin so, without the prefix: a part of them
---@return integer? further  `from` for the next part; nil after the last one
function host.topic.names(prefix, from) end

--- Adds to a number about publications for other nodes of the cluster.
---@param what "gap"|"waits"|"dropped"
---@param n integer
function host.topic.count(what, n) end

---@param prefix string
---@return string[] lines  For each topic that begins so and has sessions as subscribers: whom the first counts for (a principal's digest or an address,
---as hexadecimal digits), a space, and the rest of the topic; empty unless sessions of an earlier process go on in this one
function host.topic.revived(prefix) end

--- Turns the call into a subscriber of `topics`, which needs no task, and then sends the message `acknowledged`, as JSON.
--- `closing` is its result as JSON when the gateway ends it.
---@param call moonpool.Call
---@param topics string[]
---@param closing string
---@param acknowledged string
---@return boolean? ok
---@return string? why  "too many" or "no room": nothing was sent
function host.call.listen(call, topics, closing, acknowledged) end

-- -- answers that are kept as bytes (core/lib/shortcut/frozen_answer.c) ------------------------------------------------

--- Keeps the result of a request whose params name no more than `uri` (nil: nothing). C answers later requests with it, until another snapshot is published.
---@param generation integer  Of the snapshot from which the bytes were made: if another one is published, the bytes are not kept
---@param method string
---@param revision string
---@param uri? string
---@param bytes string      The result as JSON
---@param metrics? lightuserdata  host.metrics.resource of the resource
function host.answers.freeze(generation, method, revision, uri, bytes, metrics) end

-- -- what is served (core/lib/served.c) --------------------------------------------------------------------------------

--- Begins a snapshot of the registry, before anything is read for it.
---@return integer generation
function host.served.begin() end

---@return boolean  True if the last snapshot that was begun is published
function host.served.is_settled() end

--- Publishes a snapshot, unless one of a later generation is published: sets holder.now, forgets all kept answers, and replaces the call plans.
---@param holder table
---@param snapshot table
---@param generation integer
---@param rows table[]         The plans, as lua/moonpool/registry/plan.lua describes them
---@param has_private boolean  Calls in sessions get no kept answer, and a plan only where C knows the rights of their principal
function host.served.publish(holder, snapshot, generation, rows, has_private) end

-- -- authentication (core/lib/work/auth.c) -----------------------------------------------------------------------------

--- Makes the reference to a principal that C stores with an authenticated request.
---@param value moonpool.Principal
---@param id string
---@param key string
---@param expires? number  Seconds since 1970
---@param issuer? string
---@param sign_in? string  The id of the sign-in that it is from
---@return userdata
function host.auth.principal_ref(value, id, key, expires, issuer, sign_in) end

--- No access token of the sign-in is admitted from now on, in this process; its streams and calls end.
---@param id string
---@param seconds integer  How long tokens of it may be left
function host.auth.end_sign_in(id, seconds) end

---@param id string
---@return boolean?  Whether the sign-in has ended; nil: the store has to be asked
function host.auth.has_ended(id) end

--- Begins to read the endings anew, since messages about some may have been lost. From now on has_ended() answers nil, until all endings that the
--- store has were given to end_sign_in(), and then the number that this returns to know_endings().
---@param is_again? boolean
---@return integer  0: all are known, and not to be read again
function host.auth.doubt_endings(is_again) end

---@param number integer
function host.auth.know_endings(number) end

--- Turns authentication on for this generation.
---@param realm string
---@param scopes string
---@param metadata string
function host.auth.enable(realm, scopes, metadata) end

--- `n` files of auth scripts were never read by this Lua state: `/readyz` says 503 while there are any.
---@param n integer
function host.auth.count_unread(n) end

--- The file at `path`, which a script names, was accepted with this text. It outlives the Lua state.
---@param path string
---@param text string
function host.auth.keep_text(path, text) end

---@param path string
---@return string?  The text with which the file was accepted last, by any Lua state
function host.auth.kept_text(path) end

---@param text string
---@return string  The SHA-256 of the text, cached for recent bearer tokens
function host.auth.token_id(text) end

-- -- background work (core/lib/work/detached.c) ------------------------------------------------------------------------

--- Runs f with a call like this one, detached from its request.
---@param call moonpool.Call
---@param f fun(call: moonpool.Call)
---@param seconds number
---@param id? string  The text of the bus message "ended", which every VM gets when the job has ended in whatever way, and of "lost", if the client of a
--- call without a session left before the answer
---@return userdata? job
---@return string? why  "too many", "the client has left"
function host.job.spawn(call, f, seconds, id) end

--- Runs f in a task with a call that belongs to the gateway and to no client.
---@param f fun(call: moonpool.Call)
---@param seconds number
---@param more? number   Seconds of processor time beyond limits.call.cpu, for work that no script has written
---@param bytes? integer  Memory beyond limits.call.memory, for such work
---@return boolean? ok
---@return string? why
function host.job.begin(f, seconds, more, bytes) end

--- As host.job.begin, for work of which a Lua state has a few tasks at once, whatever clients and scripts do: their tasks do
--- not fill its room.
---@param f fun(call: moonpool.Call)
---@param seconds number
---@param more? number
---@param bytes? integer
---@return boolean? ok
---@return string? why
function host.job.begin_own(f, seconds, more, bytes) end

--- Cancels a job. Does nothing if the job has ended.
---@param job userdata
---@param why? string
function host.job.stop(job, why) end

--- Runs moonpool.run_job(call, name) at an interval. Call it only while scripts load.
---@param name string
---@param every number   Seconds
---@param limit? number  Seconds
---@param when? string    For people; without it the job is not shown
---@param first? integer  The first start, in seconds since 1970
function host.job.schedule(name, every, limit, when, first) end

--- Runs moonpool.run_job(call, name, text, more) for each message of a source, on one worker of the process, one after another; with nil, nil
--- where messages may have been missed; with false, nil at an interval. Call it only while scripts load.
---@param name string
---@param source userdata  Of a library, such as host.redis.channel
---@param when? string     For people; without it the job is not shown
---@param limit? number    Seconds
---@param every? number    Seconds
function host.job.listen(name, source, when, limit, every) end

--- True if jobs of this process start: of the processes of a gateway the newest one starts them.
---@return boolean
function host.job.is_allowed() end

--- The job begins to run; or, with an outcome, has ended. For the page of the admin listener.
---@param name string
---@param outcome? "ok"|"failed"|"cancelled"
---@param next? integer  The next start, in seconds since 1970; without it an interval after the last
function host.job.note(name, outcome, next) end

--- Runs the functions concurrently. True if every function returned true. If one fails, the others are cancelled.
---@param functions (fun(): boolean)[]
---@param what? string  The name of the function that scripts have called, for errors
---@return boolean
function host.task.parallel(functions, what) end

--- Cancels the running task at its n-th wait from now on; 0 removes that. For specs of scripts.
---@param n integer
function host.task.cancel_at(n) end

--- Makes an event that tasks can wait for. It is not set.
---@return moonpool.host.Event
function host.task.event() end

--- Takes one of `most` places of a named semaphore of the process, or with `is_shared` of all processes of the gateway, and parks until one is free. Closing the place or the end of the task
--- returns it. nil if too many tasks wait.
---@param name string
---@param most integer
---@param is_shared? boolean
---@param most_waiting? integer  Fewer than may wait in any case
---@return userdata?
function host.semaphore.take(name, most, is_shared, most_waiting) end

--- Returns a value that identifies the running task.
---@return lightuserdata?  nil outside of tasks
function host.task.current() end

-- -- the store (core/lib/store.c): `why` is "full", "unavailable", or "unknown": not answered, perhaps done ----

---@param key string
---@param text string
---@param seconds? number
---@param sync? boolean
---@return boolean? ok
---@return string? why
function host.store.set(key, text, seconds, sync) end

--- Sets the text and returns true if the key has none; else returns false.
---@param key string
---@param text string
---@param seconds? number
---@param sync? boolean
---@return boolean? ok
---@return string? why
function host.store.add(key, text, seconds, sync) end

--- Sets the text and returns true if the key has the text `old`, or none if `old` is false; else returns false. Without `seconds` the time to
--- live stays. With `text` false the key is deleted.
---@param key string
---@param old string|false
---@param text string|false
---@param seconds? number
---@param sync? boolean
---@return boolean? ok
---@return string? why
function host.store.cas(key, old, text, seconds, sync) end

--- Takes the lock. `fence` is a number above those of all earlier locks, and the text of the key; false if the lock is taken.
---@param key string
---@param seconds? number
---@return integer|false? fence
---@return string? why
function host.store.lock(key, seconds) end

--- Counts that a function has lost its lock.
function host.store.lost() end

--- Like host.store.set if the lock has this fence; else returns false.
---@param key string
---@param text string
---@param lock string
---@param fence integer
---@param seconds? number
---@param sync? boolean
---@return boolean? ok
---@return string? why
function host.store.set_locked(key, text, lock, fence, seconds, sync) end

---@param key string
---@return string? text
---@return string? why
function host.store.get(key) end

---@param key string
---@return boolean? ok
---@return string? why
function host.store.delete(key) end

---@param prefix string
---@param most? integer
---@return string[] keys  Sorted; empty if `why` is set
---@return string? why
function host.store.keys(prefix, most) end

--- `seconds` is used for a new key only.
---@param key string
---@param n integer
---@param seconds? number
---@param sync? boolean
---@return integer? sum
---@return string? why
function host.store.incr(key, n, seconds, sync) end

--- Returns once all changes so far to keys that begin with "signin:" are on the disk; at once without a file, or if it cannot be written.
function host.store.saved() end

--- Whether this change, or all so far, to keys that begin with "signin:" are on the disk; nil: the file cannot be written now.
---@param number? integer
---@return boolean? done
---@return integer number  Of the last change
function host.store.is_saved(number) end

--- Takes one token of a bucket that gains one token every `seconds`. Returns true; false and the seconds until the next token; or nil and why.
---@param key string
---@param seconds number
---@param burst integer
---@return boolean? ok
---@return number|string? wait
function host.store.take(key, seconds, burst) end

-- -- files -------------------------------------------------------------------------------------------------------------

--- Runs the file action on another thread. Returns its result; or nil, why, and true if the file does not exist.
---@param what "read"|"write"|"append"|"list"|"stat"|"remove"|"mkdir"
---@param root string
---@param rest string
---@param text? string
---@return any result
---@return string? why
---@return boolean? is_missing
function host.fs.run(what, root, rest, text) end

--- Reads a file on this thread, which waits for it: for `moonpool check`.
---@param root string
---@param rest string
---@return string? text
---@return string? why
function host.fs.read_at_once(root, rest) end

-- -- HTTP (core/lib/http.c) --------------------------------------------------------------------------------------------

---@param request moonpool.host.Request
---@return integer? status
---@return string|table head
---@return string|userdata body  For a stream: a handle
---@return string? kind          The kind of failure, after nil, why, hint
function host.http.send(request) end

--- Returns the next bytes of the body; false at its end; or nil, why, hint, kind.
---@param handle userdata
---@param seconds? number
---@return string|false|nil bytes
---@return string? why
---@return string? hint
---@return string? kind
function host.http.read(handle, seconds) end

--- Cancels the request if it is in flight.
---@param handle userdata
function host.http.close(handle) end

---@param text string
---@param base? string
---@return moonpool.host.Url? url
---@return string? why
---@return string? hint
function host.http.url(text, base) end

---@param text string
---@return string?  The IP address in its canonical form; nil if the text is no address
function host.http.address(text) end

---@param address string
---@return string  What stands for the client at this address where clients are counted by address: of IPv6 its network of 64 bits
function host.http.counted(address) end

-- -- SQLite (core/lib/sqlite.c) ----------------------------------------------------------------------------------------

---@param root? string  nil: in memory
---@param rest? string
---@param read_only boolean
---@param setup? string  SQL that runs when the database is opened
---@param state table  Its `handle` is set, unless it has one
---@param script integer  Of host.sqlite.script: who opens it
function host.sqlite.open(root, rest, read_only, setup, state, script) end

---@param path string  Of a script
---@return integer  The number by which its databases are counted: each script has a share of their places and memory
function host.sqlite.script(path) end

--- Cancels a running statement and closes the database, without waiting.
---@param database userdata
function host.sqlite.leave(database) end

---@param script integer  Of host.sqlite.script
---@return integer handles  Number of open databases, with databases in memory that are not collected yet
---@return integer closing  Number of closed databases whose threads still run
---@return boolean collects True if the garbage collector has work left
---@return boolean is_over_share  True if the script leaves too few to others to have one more
---@return integer own  Number of the handles that the script has opened
function host.sqlite.count(script) end

--- Parks until the garbage collector has finished two cycles. False if the caller must not wait.
---@return boolean
function host.sqlite.tidy() end

--- Runs a statement. Returns the rows of a query, else the number of changed rows and the last row's id; or nil, why; or false if another
--- transaction has the database, or it is closed.
---@param state table  handle, owner: the token of the transaction that has the database
---@param kind "query"|"exec"|"begin"|"commit"|"rollback"|"close"
---@param sql? string
---@param params? table
---@param token? table  Of the transaction that the statement belongs to; `begin` makes it the owner
---@param script integer  Of host.sqlite.script: who runs it
---@return any result
---@return string|integer? more
function host.sqlite.run(state, kind, sql, params, token, script) end

--- Rolls back an open transaction, without waiting.
---@param database userdata
function host.sqlite.undo(database) end

--- Counts a database that was refused because all places are taken.
function host.sqlite.count_refused() end

-- -- Nodes of a cluster (core/lib/nodes.c) ------------------------------------------------------------------------------

---@class moonpool.host.nodes
---@field keys? string[]   A hash of each of seal_keys, with `cluster`
---@field config? string   A hash of moonpool.yaml
host.nodes = {}

--- What this process says of itself; nil if it takes no part in a cluster. Each result has the number of another renewal.
---@return { uid: string, node: string, address: string, number: integer, renewals: integer, sessions: integer, leaving: boolean, joined: boolean, heir: boolean, via: integer?, siblings: table<integer, true> }? own
function host.nodes.own() end

--- Does not use up a renewal.
---@return string? uid  Of this process; nil if other nodes cannot know it
---@return boolean? has_joined
---@return boolean? is_leaving
function host.nodes.uid() end

--- All records as they were read; without them: the read has failed.
---@param records? { number: integer, uid: string, node: string, address: string, version: string, scripts: string, config: string, renewals: integer, sessions: integer, state: string }[]
---@param id? string  Which data of the server they are from
---@param ahead? number  Seconds by which the clock of this machine is ahead of the server's
---@return table<integer, "stale"|"over"> stale  Records that do not change; "over": removed if their processes are gone
function host.nodes.take(records, id, ahead) end

--- What the server has for the number for which "cluster number" has asked.
---@param number integer
---@param record? table  As of take; nil: there is none
function host.nodes.answer(number, record) end

--- Whether a process whose record is stale has answered lately. Nil: that is not known yet, and it is asked.
---@param number integer
---@return boolean? lives
function host.nodes.lives(number) end

--- A turn has ended. With "" this process takes sessions, with a reason it takes none.
---@param why? string
---@return boolean is_new
function host.nodes.settle(why) end

--- This process leaves its cluster and ends, as `moonpool drain` says.
function host.nodes.leave() end

--- Ends the sessions of this process, and takes another number and uid. False: it cannot have another number.
---@return boolean
function host.nodes.renumber() end

--- Sends the bus message "node_message", an id, a newline and the text, to one VM of each other node that renews its record, and waits for
--- what it decides, a second at most.
---@param text string
---@return { node: string, address: string, is_taken: boolean }[] answers  Of each process; empty if none is known
function host.nodes.tell(text) end

--- Answers the node that has sent the bus message "node_message" with this id: what an operator has switched there holds here, or not.
---@param id integer
---@param is_taken boolean
function host.nodes.decide(id, is_taken) end

-- -- Redis (core/lib/redis.c) -------------------------------------------------------------------------------------------

---@class moonpool.host.redis
host.redis = {}
--- A connection that is opened by its first command.
---@param server { host: string, port: integer, tls: boolean, database: integer, user: string, password: string, reach: string, script: string, place: string, lists: table }
---@return userdata
function host.redis.connection(server) end

---@param connection userdata
---@return integer  Requests that are queued or not answered
function host.redis.load(connection) end

--- Sends requests together and waits. true and the reply, of several requests the list of the replies; or nil, why, and "error",
--- "unavailable" or "unknown"; with these two also "late", its time is over, "lost", the connection is, or "refused", by the gateway.
---@param connection userdata
---@param requests string[][]
---@param seconds number
---@param operation string  The name of the command, for spans
---@param script string     The path of the script that has opened the cache
---@return true? done
---@return any reply
---@return string? reason
---@return string? how
function host.redis.send(connection, requests, seconds, operation, script) end

--- A channel, or with is_pattern the channels of a pattern, for host.job.listen.
---@param connection userdata?  Says which server; nil: host.redis.renew will
---@param channel string
---@param is_pattern boolean
---@return userdata source
function host.redis.channel(connection, channel, is_pattern) end

--- Takes the messages of a channel from the server of another connection, by a new subscription if a job listens. False if
--- this server has refused the subscription there is, which is tried again as it is.
---@param source userdata
---@param connection userdata
---@return boolean is_new
function host.redis.renew(source, connection) end

-- -- PostgreSQL (core/lib/postgres.c) --------------------------------------------------------------------------------------

---@class moonpool.host.postgres
host.postgres = {}
--- A database, whose connections are opened by statements.
---@param server { host: string, port: integer, tls: boolean, prepare: boolean, database: string, user: string, password: string, reach: string, script: string, size: integer, timeout: number, place: string, root?: string, lists: table }
---@return userdata
function host.postgres.pool(server) end

--- A place at one of its connections, for one statement or one transaction.
---@param pool userdata
---@return userdata
function host.postgres.lease(pool) end

--- Sends queries together and waits. true, { rows, count, … } and whether there are more rows; or nil, why, "error", "unavailable" or
--- "unknown", and the SQLSTATE.
---@param lease userdata
---@param queries { sql: string, n: integer }[]  With values: a text, json.null, or { text, OID }
---@param seconds number
---@param keeps? boolean  The lease has the connection until release(); else until the statement has ended
---@param fetch? integer  Rows that are wanted at once; 0: all
---@return true? done
---@return any found
---@return any more
---@return string? state
function host.postgres.run(lease, queries, seconds, keeps, fetch) end

--- Waits for more rows of the statement, as run() does.
---@param lease userdata
---@param unused nil
---@param seconds number
---@return true? done
---@return any found
---@return any more
---@return string? state
function host.postgres.more(lease, unused, seconds) end

--- Gives the connection back: what runs is cancelled, an open transaction is rolled back. Does not wait.
---@param lease userdata
function host.postgres.release(lease) end

--- A channel, for host.job.listen.
---@param pool userdata
---@param channel string  At most 63 bytes
---@return userdata source
function host.postgres.channel(pool, channel) end

-- -- upstreams (core/lib/upstream/channel.c) ---------------------------------------------------------------------------

---@class moonpool.host.upstream
---@field hops string       The value of moonpool-hops for requests of its own: the gateways that run it as a program, and its instance
---@field instance string   An id of this process, for the header by which gateways in a circle recognize themselves
host.upstream = {}

--- Why there is no channel, or no answer. `reason` is one of
---   refused      no connection: no address, refused, TLS, `connect`            address     the address is not public, and `private` is not set
---   closed       the connection ended before the answer                        status      an HTTP status without an answer
---   timeout, total   see the options of send                                   open        no channel within `open`
---   unreadable   the answer is no message, compressed, or has another id       too_large   it is larger than `answer`
---   busy         `calls` run and `waiting` wait, or a cap of limits.upstreams   down        the circuit is open, or opening failed a moment ago
---   barred       the credential was refused                                    lost        the channel ended before this was sent: take it again
---   unknown      no upstream has this name                                     stopped     the gateway stops, or a reload replaced the upstream
---   cancelled    by the task itself
---@class moonpool.host.UpstreamFailure
---@field outcome "not_run"|"unknown"   unknown: the upstream may have received the message
---@field reason string
---@field why string           For operators; may have addresses: never for clients
---@field status? integer      HTTP status
---@field retry_after? number  Seconds
---@field head? string         Lines "name: value" of the HTTP answer
---@field body? string         At most 4 KiB of it

---@class moonpool.host.UpstreamEvent
---@field kind "answer"|"request"|"notification"|"accepted"   accepted: the upstream has received a message without an id
---@field result? string       answer: JSON
---@field error? string        answer: JSON of the error
---@field method? string       request, notification
---@field id? string           request: JSON
---@field bytes? string        request, notification: the whole message
---@field status? integer      HTTP status
---@field session? string      answer: the id of the session that it opened, from its header

---@class moonpool.host.SendOptions
---@field id? integer          The id in the message, from next_id; without: a message that has no answer. The progress token must be the same number
---@field headers? string[]    "Name: value", besides those of the configuration and the server info
---@field revision? string     MCP-Protocol-Version of this message instead of the server info's
---@field session? string     Mcp-Session-Id of this message instead of the server info's
---@field timeout? number      Seconds without a sign of life; default as configured. Stands still while a request of the upstream has no reply
---@field total? number        Seconds in all
---@field answer? integer      Bytes of the answer
---@field is_retry? boolean       The same request was sent before: counted in /metrics
---@field is_trial? boolean  Of a revision that the upstream may not know: a refusal is not counted as a failure of the upstream
---@field is_opening? boolean  `initialize`: the answer that holds its result may give a session id, which no other answer does
---@field takes_questions? boolean  The task can ask a client: questions that name no request come to the newest of these requests first
---@field signal? moonpool.host.Event  Set by whatever comes, so that one task can wait for several sources; then exchange:take is used, not next
---@field cancel? string       A message (notifications/cancelled) that is sent if the exchange ends before its answer: by cancel, a time limit, or the end of the task

---@class moonpool.host.Exchange   Cancelled when the task that sent it ends, and by <close>; a message without an id is still sent then
---@field next fun(self: moonpool.host.Exchange): moonpool.host.UpstreamEvent?, moonpool.host.UpstreamFailure?   Waits. After "answer" or "accepted" it is over
---@field take fun(self: moonpool.host.Exchange): moonpool.host.UpstreamEvent?, moonpool.host.UpstreamFailure?   next without the wait: nothing if nothing has come
---@field reply fun(self: moonpool.host.Exchange, bytes?: string): boolean   Answers a request of the upstream, or notes that it was taken back; false if the exchange has ended
---@field cancel fun(self: moonpool.host.Exchange, bytes?: string)   Ends it; `bytes` are sent instead of the option `cancel`
---@field make_pending fun(self: moonpool.host.Exchange, seconds: number, cancel_messages: string[], principal: string): string?, moonpool.host.UpstreamFailure?   The task leaves it to a later one, which has the handle: until then its slot is free, its time limits rest, what comes is kept. `cancel_messages` is sent upstream if nothing takes it up in time. "busy": too many wait; the exchange is as before then

---@class moonpool.host.Channel
---@field send fun(self: moonpool.host.Channel, bytes: string, options?: moonpool.host.SendOptions): moonpool.host.Exchange?, moonpool.host.UpstreamFailure?   Does not wait
---@field next_id fun(self: moonpool.host.Channel): integer
---@field server_info fun(self: moonpool.host.Channel): table?   What was given to opened, with `serial`; nil before
---@field serial fun(self: moonpool.host.Channel): integer
---@field transport fun(self: moonpool.host.Channel): "http"|"sse"|"stdio"
---@field opened fun(self: moonpool.host.Channel, server_info: table): boolean   After "claimed": the channel is open for all tasks. server_info.revision and server_info.session become headers over HTTP. False if it has ended
---@field use fun(self: moonpool.host.Channel, transport: "http"|"sse"): boolean   After "claimed": another transport from now on; false if there is none
---@field authorize fun(self: moonpool.host.Channel, token: string)   Requests over HTTP have this bearer token from now on
---@field failed fun(self: moonpool.host.Channel, failure: table)   After "claimed": tasks that wait fail, too, and the key rests; for retry_after seconds where the reason is "barred"
---@field lost fun(self: moonpool.host.Channel, serial?: integer): boolean   The upstream has forgotten the session: the next taker opens another one. True for the first call
---@field listen fun(self: moonpool.host.Channel, options?: { id: integer?, message: string?, revision: string?, headers: string[]? }): "open"|"none"|"late", integer?   Opens a listen stream over Streamable HTTP: the GET of the channel, or that of the request `message` with the id `id`; with the HTTP status. It stays until the channel ends
---@field hold fun(self: moonpool.host.Channel, is_held: boolean)   A channel that is held is not ended for being idle
---@field unlisten fun(self: moonpool.host.Channel, id: integer)   Closes the listen stream of a request
---@field close fun(self: moonpool.host.Channel)     Ends it for all tasks, and its session at the upstream
---@field release fun(self: moonpool.host.Channel)   This task needs it no more; also by <close> and at the end of the task

--- Takes the channel of a sharing key. "claimed": this task has to open it (send what is needed, then opened or failed), while others wait for it; a
--- task that ends without either gives the claim to the next one. "probe": the channel is open, but the circuit, too: send something harmless
--- first; its answer closes the circuit.
---@param name string
---@param key string
---@param options? { own: userdata|string|nil, once: boolean? }  own: a call, or the id of a session: the channel ends with the session, or with the task where a call has none. once: it ends with the task
---@return moonpool.host.Channel?
---@return "open"|"claimed"|"probe"|moonpool.host.UpstreamFailure state
function host.upstream.channel(name, key, options) end

--- The channel of a sharing key if it is open and its circuit closed; else nil. Nothing waits, and nothing is opened.
---@param name string
---@param key string
---@return moonpool.host.Channel?
function host.upstream.open_channel(name, key) end

--- What upstreams say without being asked, for the worker that holds the stream. The bus message "observed" says that there is something.
---@class moonpool.host.Observation
---@field kind "message"|"gap"|"ended"|"lost"   gap: messages may be missing. ended: the listen stream of the request `stream_id` (0: the GET) has ended. lost: the channel
---@field upstream string
---@field key string
---@field serial integer
---@field channel moonpool.host.Channel
---@field method? string
---@field id? string      Of a request: its id as JSON
---@field bytes? string   The message
---@field stream_id? integer
---@field status? integer          Of an end: the HTTP status of the last attempt to open the stream; 0: it had begun
---@return moonpool.host.Observation?
function host.upstream.observed() end

--- The list that was published last, and its SHA-256 as bytes; nil: none.
---@param name string
---@param class string
---@return string? bytes
---@return string? hash
---@return boolean? is_stale  A reload has changed the upstream's connection since it was published
function host.upstream.catalogue(name, class) end

--- What host.upstream.catalogue would give, without the bytes.
---@param name string
---@param class string
---@return string? hash
---@return integer? size      In bytes
---@return boolean? is_stale
function host.upstream.catalogue_hash(name, class) end

--- The number of catalogues that were published in this process and were new.
---@return integer
function host.upstream.publications() end

--- The classes of an upstream that belong to one caller each: their names begin with "@". An upstream keeps 256 of them.
---@param name string
---@return table<string, string> hashes  By class
function host.upstream.callers(name) end

--- Counts what became of a token that an upstream needs.
---@param outcome "got"|"refused"|"failed"|"evicted"
function host.upstream.count_token(outcome) end

---@class moonpool.host.upstream.traits
---@field has_high? boolean a byte that is no visible ASCII character, or DEL
---@field has_private? boolean a character for private use
---@field has_unicode? boolean `\u`: anything may be written in another spelling
---@field has_escaped? boolean `\u`, `\b` or `\f`
---@field has_reference? boolean a name that ends with "ref" or "Ref"
---@field has_default? boolean a member `default`
---@field has_odd_numbers? boolean a number that is no integer of up to 15 digits
---@field opened integer how many arrays and objects it has at most

--- What the JSON text of a definition of an upstream may have.
---@param definition string
---@return moonpool.host.upstream.traits
function host.upstream.traits(definition) end

--- The words of a list that a text has in any case, in the order of the list: lower case, of two bytes at least, at most 64.
---@param text string  A MiB and 64 bytes at most
---@param list string[]
---@return string[]
function host.upstream.words(text, list) end

--- "sha256:" and the SHA-256 of a text in hexadecimal digits.
---@param text string
---@return string
function host.upstream.hash(text) end

--- The texts of a list with line ends between them, however long.
---@param lines string[]
---@return string text
function host.upstream.join(lines) end

--- Counts one refusal: something was over a limit of limits.upstreams, or ("routes") a name is that of another upstream, too.
---@param what "links"|"subscriptions"|"lists"|"rounds"|"journals"|"routes"|"questions"
function host.upstream.count_refused(what) end

--- Keeps a list for all workers. True if it differs from the last one: then every VM gets the bus message "catalogue" with name .. "\0" .. class.
---@param name string
---@param class string
---@param bytes string
---@param claim? userdata  What host.upstream.claim gave: a list that was read before a reload changed the upstream's connection is dropped
---@return boolean? is_new
---@return moonpool.host.UpstreamFailure?
function host.upstream.publish(name, class, bytes, claim) end

--- The right to list this class, for one task of all workers at a time, until claim:release(), <close> or the end of the task; nil: another task has it.
---@param name string
---@param class string
---@return { release: fun(self: table) }?
function host.upstream.claim(name, class) end

--- Facts about each upstream: name, kind, state ("unused", "up", "down", "barred"), revision, transport, channels, opening, running, waiting, calls,
--- errors, lost, dropped, refused, opened, p50 and p99 (seconds), retry_after, error, error_at, processes, restarts.
---@return table[]
function host.upstream.status() end

--- Keeps a text about what an upstream has listed, for /status: members of a JSON object, without braces
---@param name string
---@param text string
---@return boolean is_kept  False: the text is too long, or no upstream has this name
function host.upstream.describe(name, text) end

--- Takes a pending exchange up, on any worker; nil: the handle was used, has expired, or belongs to another principal.
---@param handle string     What exchange:park gave
---@param principal string
---@param signal? userdata  As the option of send
---@return moonpool.host.Exchange?
function host.upstream.take_up(handle, principal, signal) end

--- Keeps at most 1 MiB for a later task of any worker, if fewer than 256 wait, and for at most five minutes.
---@param bytes string
---@param seconds number
---@param principal string
---@return string? handle
---@return moonpool.host.UpstreamFailure?
function host.upstream.keep(bytes, seconds, principal) end

--- Notes that the answer to the call has this handle, of a pending exchange or of kept bytes. If the client certainly leaves without that answer, the exchange is cancelled, or the bytes are
--- freed.
---@param call moonpool.Call
---@param handle string
function host.upstream.expect(call, handle) end

--- The bytes that host.upstream.keep stored; nil: the handle was used, has expired, or belongs to another principal.
---@param handle string
---@param principal string
---@return string?
function host.upstream.fetch(handle, principal) end

-- -- bytes and secrets -------------------------------------------------------------------------------------------------

---@param kind string
---@param bytes string
---@return string
function host.digest.sum(kind, bytes) end

--- Computes an HMAC (RFC 2104).
---@param kind string
---@param key string
---@param bytes string
---@return string
function host.digest.hmac(kind, key, bytes) end

--- The scrypt hash (RFC 7914), 32 bytes; nil if OpenSSL takes no such numbers, or the thread pool is full; false if two are computed already. Waits.
---@param password string
---@param salt string
---@param n integer
---@param r integer
---@param p integer
---@return string|false|nil
function host.digest.scrypt(password, salt, n, r, p) end

---@param bytes string
---@return string
function host.base64.encode(bytes) end

---@param text string
---@return string?
function host.base64.decode(text) end

--- Encrypts a text that a client stores and sends back.
---@param text string
---@param about string  The purpose; unseal needs an equal one
---@param is_repeatable? boolean  Equal texts give equal results
---@param purpose? string  By keys that are derived for it
---@return string
function host.seal.make(text, about, is_repeatable, purpose) end

--- Decrypts a text that `seal` made. nil if it was made for another purpose or with an unknown key.
---@param sealed string
---@param about string
---@param purpose? string
---@return string?
function host.seal.open(sealed, about, purpose) end

---@param text string
---@return userdata
function host.secret.new(text) end

---@param value any
---@return string?  The text of a secret; nil for any other value
function host.secret.reveal(value) end

--- Makes a lua-cjson compatible module with its own limits and settings; or nil, why.
---@param is_safe boolean
---@return table?
---@return string? why
function host.cjson.new(is_safe) end

return host
