---@meta
-- Every name that a moonpool script sees, for editors (LuaLS). Nothing here runs.
error("moonpool.d.lua holds types for editors: scripts have these names without requiring anything")

--- What the client asked for, and what you can tell it meanwhile. Gone with its answer: later use raises "this call has ended".
---@class moonpool.Call
---@field revision moonpool.Revision    The protocol revision this client speaks
---@field method string                 "tools/call", "resources/read", "prompts/get", "completion/complete"
---@field principal moonpool.Principal  Who calls, as auth said
---@field address? string              Whence it came: "127.0.0.1", "unix"; nil over stdio and for background work
---@field client? table                 What the client calls itself: name, version
---@field capabilities? table           What the client can do
---@field meta? table                   `_meta` of the request
---@field task? string                 The id of the task that this is the work of
---@field cancelled boolean
local Call = {}

--- Who calls. It cannot be changed; `tostring` gives its id.
---@class moonpool.Principal
---@field id string          "anonymous" is whoever no auth script knows, "local" whoever runs the gateway himself
---@field scopes string[]    What it was granted; "*" is everything
---@field claims? table      What else auth knows of it

---@alias moonpool.Revision "2024-11-05"|"2025-03-26"|"2025-06-18"|"2025-11-25"|"2026-07-28"
---@alias moonpool.Level "debug"|"info"|"notice"|"warning"|"error"|"critical"|"alert"|"emergency"

--- Tells how far the work is, if the client wanted to know. `progress` must grow.
---@param progress number
---@param total? number
---@param message? string
function Call:progress(progress, total, message) end

--- Sends a log message to the client, if it wants that level.
---@param level moonpool.Level
---@param data any            Anything JSON can say
---@param logger? string      Which part speaks
function Call:log(level, data, logger) end

--- Lets the client's connection go while the call goes on: for work that takes long. The client comes back for the answer.
--- Nothing happens, and it gives false, where the client cannot: before and after 2025-11-25, and over HTTP+SSE.
---@param seconds? number   When it may come back; 1 by default
---@return boolean
function Call:detach(seconds) end

--- Ends the call with an error that the client understands, unless it has these capabilities.
---@param ... string  "sampling", "elicitation", "elicitation.url", "roots", "extensions.<id>"
function Call:require(...) end

--- Ends the call unless its principal has all of these scopes: for a handler whose arguments decide what is needed. Its client
--- gets 403 and may ask for them, where the auth scripts offer them and nothing was sent yet; else the tool fails.
---@param ... string  "orders:write"
function Call:needs(...) end

--- Asks the user to fill in a form. In 2026-07-28 the handler runs again from the top once the answer is there, so before
--- a question do only what may happen twice, and wrap the rest in `call:once`.
---@param key string        Its name, the same from run to run
---@param message string
---@param fields table<string, moonpool.Type>
---@return table? filled_in
---@return string? why      "declined", "cancelled", "unsupported", "invalid", or the client's words
function Call:elicit(key, message, fields) end

--- Sends the user to a page, for what no form may ask. True means that they went, not what they did there.
---@param key string
---@param message string
---@param url string        http or https, without credentials
---@return true? went
---@return string? why      "declined", "cancelled", "unsupported"
function Call:elicit_url(key, message, url) end

--- What the user did at the page of this key is done, for clients that want to know (2025-11-25).
---@param key string
function Call:url_done(key) end

--- Ends the call until the user has been at a page: the client shows it and calls again. Call it whenever that is not done yet.
---@param key string
---@param message string
---@param url string
function Call:needs_url(key, message, url) end

--- What a task is at, for people. Quiet in a call that is no task.
---@param message string
function Call:status(message) end

--- Asks the client's model.
---@param key string
---@param request string|table   A text, or the parameters of sampling/createMessage
---@return table? answer         role, content, model
---@return string? why
function Call:sample(key, request) end

--- Asks for the client's roots.
---@param key? string
---@return table[]? roots   Each has a uri, perhaps a name
---@return string? why
function Call:roots(key) end

--- Runs `f` once, however often the handler runs again to ask. What it gives must be JSON.
---@generic T
---@param key string
---@param f fun(): T
---@return T
function Call:once(key, f) end

--- Asks several things at once.
---@param questions table<string, moonpool.Question>
---@return table<string, any> answers
---@return table<string, string> whys   Why an answer is missing
function Call:ask(questions) end

---@class moonpool.Question

---@class moonpool.Ask
---@field elicit fun(message: string, fields: table<string, moonpool.Type>): moonpool.Question
---@field elicit_url fun(message: string, url: string): moonpool.Question
---@field sample fun(request: string|table): moonpool.Question
---@field roots fun(): moonpool.Question
ask = {}

--- A type of an argument: `t.number`, `t.string { "About it", max = 20 }`, `t.string "About it"`.
---@class moonpool.Type
---@overload fun(options: moonpool.Options|string): moonpool.Type

---@class moonpool.Options
---@field [1]? string          What it is, as the model reads it
---@field description? string
---@field title? string
---@field optional? boolean    May be left out
---@field default? any         May be left out, and is this then
---@field examples? any[]
---@field deprecated? boolean
---@field read_only? boolean
---@field write_only? boolean
---@field also? moonpool.Type[]  Types that must fit besides: `also = { t.none_of { t.const "root" } }`
---@field header? string       Mirrored in the header Mcp-Param-<name> (string, integer, boolean)

---@class moonpool.StringOptions: moonpool.Options
---@field min? integer
---@field max? integer
---@field pattern? string      A regular expression, as in JSON Schema
---@field complete? moonpool.Completion  What a prompt's argument may become while it is typed
---@field format? "date"|"date-time"|"time"|"duration"|"email"|"hostname"|"ipv4"|"ipv6"|"uri"|"uuid"|"regex"|string
---@field encoding? "base64"|string  How bytes are written in it, as clients are told
---@field mime? string         What is written in it, as clients are told

---@class moonpool.NumberOptions: moonpool.Options
---@field min? number
---@field max? number
---@field above? number        More than this
---@field below? number        Less than this
---@field step? number         A multiple of this

---@class moonpool.ListOptions: moonpool.Options
---@field min? integer
---@field max? integer
---@field unique? boolean
---@field contains? moonpool.Type  One item fits this, at least
---@field min_contains? integer
---@field max_contains? integer

---@class moonpool.MapOptions: moonpool.Options
---@field min? integer
---@field max? integer
---@field keys? moonpool.Type   What each name fits
---@field patterns? table<string, moonpool.Type>  Values by a regular expression of their names

---@class moonpool.ObjectOptions: moonpool.Options
---@field open? boolean        Other fields are welcome
---@field rest? moonpool.Type  Other fields are welcome that fit this
---@field min? integer         How many fields there are
---@field max? integer
---@field patterns? table<string, moonpool.Type>  Values by a regular expression of their names
---@field needs? table<string, string[]>  Where this field is, those must be

---@class moonpool.StringType: moonpool.Type
---@overload fun(options: moonpool.StringOptions|string): moonpool.Type
---@class moonpool.NumberType: moonpool.Type
---@overload fun(options: moonpool.NumberOptions|string): moonpool.Type

---@class moonpool.Types
---@field string moonpool.StringType
---@field number moonpool.NumberType
---@field integer moonpool.NumberType
---@field boolean moonpool.Type
---@field null moonpool.Type
---@field any moonpool.Type
t = {}

---@param item moonpool.Type
---@param options? moonpool.ListOptions|string
---@return moonpool.Type
function t.list(item, options) end

--- Items of different types, by their places: `t.tuple { t.number, t.number, rest = t.string }`. Nothing follows without `rest`.
---@param items table
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.tuple(items, options) end

--- Any names, values of one type.
---@param value moonpool.Type
---@param options? moonpool.MapOptions|string
---@return moonpool.Type
function t.map(value, options) end

---@param fields table<string, moonpool.Type>
---@param options? moonpool.ObjectOptions|string
---@return moonpool.Type
function t.object(fields, options) end

--- This value alone.
---@param value any
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.const(value, options) end

--- One of these values: `t.one_of { "celsius", "fahrenheit", default = "celsius" }`. Of types, exactly one fits:
--- `t.one_of { t.const("c", { title = "Celsius" }), t.const("f", { title = "Fahrenheit" }) }`.
---@param choices table
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.one_of(choices, options) end

--- One of them fits, or several.
---@param types moonpool.Type[]
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.any_of(types, options) end

--- All of them fit. Fields that one of them does not know are the others'.
---@param types moonpool.Type[]
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.all_of(types, options) end

--- None of them fits.
---@param types moonpool.Type[]
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.none_of(types, options) end

--- What fits the condition fits `yes`, too; what does not, `no`. Stands in `also` of an object, or in t.all_of.
---@param condition moonpool.Type
---@param yes moonpool.Type
---@param no? moonpool.Type
---@return moonpool.Type
function t.when(condition, yes, no) end

--- The same, or null, which scripts get as json.null.
---@param type moonpool.Type
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.nullable(type, options) end

--- A type that is written once and used in several places, or inside itself:
--- `t.define("tree", function(tree) return t.object { name = t.string, leaves = t.optional(t.list(tree)) } end)`.
---@param name string
---@param of moonpool.Type|fun(type: moonpool.Type): moonpool.Type
---@return moonpool.Type
function t.define(name, of) end

---@param type moonpool.Type
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.optional(type, options) end

--- JSON Schema (2020-12) as it is, for what the others do not say.
---@param schema table
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.schema(schema, options) end

---@class moonpool.Tool
---@field [1] string                                              What it does, as the model reads it
---@field [2] fun(args: table, call: moonpool.Call): any, string?  What it does
---@field input? table<string, moonpool.Type>|moonpool.Type       Required unless `optional` or `default`
---@field output? table<string, moonpool.Type>|moonpool.Type      What it returns; checked before it leaves
---@field title? string                                           A name for people
---@field timeout? number                                         In seconds: `30 * seconds`
---@field concurrency? integer                                    How many calls of it run at once, in all workers together; the others wait in order
---@field requires? string[]                                      Capabilities that the client must have
---@field scopes? string[]                                        What a principal must have all of, to see and use it
---@field visible? fun(principal: moonpool.Principal): boolean?   Who sees it, where scopes do not say enough; it may not wait
---@field task? "optional"|"required"                            Goes on without its request, for clients that have tasks
---@field prepare? fun(args: table, call: moonpool.Call): any, string?  Runs before it becomes a task; what it gives takes the place of args
---@field poll? number                                            How often a client should look for news of the task, in seconds
---@field enabled? boolean                                        false: not there until enable("tool", name)
---@field read_only? boolean                                      Changes nothing
---@field destructive? boolean                                    May destroy something
---@field idempotent? boolean                                     Twice is as good as once
---@field open_world? boolean                                     Reaches beyond this machine
---@field open? boolean                                           Other arguments are welcome
---@field icons? moonpool.Icon[]
---@field meta? table<string, any>                                Its `_meta`, as clients get it
---@field ui? string|{ [1]: string, visibility?: ("model"|"app")[] }  The ui:// resource shown beside its answers (MCP Apps)

---@class moonpool.Icon
---@field src string           https: or data:
---@field mimeType? string
---@field sizes? string[]      "48x48", "any"
---@field theme? "light"|"dark"

--- A tool: `return tool { "What it does.", input = { … }, function(args, call) … end }`.
---@param spec moonpool.Tool
---@return moonpool.Tool
function tool(spec) end

--- A list offers what begins like the text typed so far; a function what it likes, and how many there are in all.
--- It gets that text and the other arguments given so far.
---@alias moonpool.Completion string[]|fun(prefix: string, args: table<string, string>, call: moonpool.Call): string[]?, integer?

---@class moonpool.Resource
---@field [1] string                                              What it is
---@field [2] string|fun(vars: table<string, string>, call: moonpool.Call): any, string?  Its contents; nil is "not found"
---@field uri string              "orders://eu/latest", or a template: {x}, {+x} with slashes, {/x} may be missing, {?a,b}
---@field mime? string
---@field ttl? number             How long clients may keep its contents: `30 * seconds`
---@field public public? boolean  Its contents are the same for everybody, and may be kept for all
---@field complete? table<string, moonpool.Completion>  By the names in a template
---@field title? string           A name for people
---@field timeout? number         In seconds
---@field requires? string[]      Capabilities that the client must have
---@field scopes? string[]        What a principal must have all of, to see and read it
---@field visible? fun(principal: moonpool.Principal): boolean?  Who sees it, where scopes do not say enough; it may not wait
---@field icons? moonpool.Icon[]
---@field meta? table<string, any>
---@field ui? moonpool.Page       What a ui:// page may do (MCP Apps)
---@field enabled? boolean       false: not there until enable("resource", name)
---@field size? integer           In bytes
---@field audience? ("user"|"assistant")[]
---@field priority? number        0 to 1
---@field modified? string        ISO 8601

---@class moonpool.Page
---@field csp? { connectDomains?: string[], resourceDomains?: string[], frameDomains?: string[], baseUriDomains?: string[] }
---@field permissions? { camera?: boolean, microphone?: boolean, geolocation?: boolean, clipboardWrite?: boolean }
---@field domain? string
---@field prefersBorder? boolean

--- Something to read: `return resource { "An order.", uri = "orders://{id}", function(vars, call) … end }`. The function returns
--- text, bytes(…), a table (JSON), or a list with bytes(…) or embed(…) in it.
---@param spec moonpool.Resource
---@return moonpool.Resource
function resource(spec) end

---@class moonpool.Prompt
---@field [1] string                                              What it is for
---@field [2] string|fun(args: table<string, string>, call: moonpool.Call): any, string?  Its messages
---@field args? table<string, moonpool.Type>                      t.string or t.one_of; required unless `optional` or `default`
---@field title? string                                           A name for people
---@field timeout? number                                         In seconds
---@field requires? string[]                                      Capabilities that the client must have
---@field scopes? string[]                                        What a principal must have all of, to see and use it
---@field visible? fun(principal: moonpool.Principal): boolean?   Who sees it, where scopes do not say enough; it may not wait
---@field enabled? boolean                                        false: not there until enable("prompt", name)
---@field icons? moonpool.Icon[]
---@field meta? table<string, any>

--- A prompt: `return prompt { "Review a change.", args = { … }, function(args, call) return { user "…" } end }`. A text alone is
--- what the user says.
---@param spec moonpool.Prompt
---@return moonpool.Prompt
function prompt(spec) end

---@class moonpool.Message
--- What the user says, in a prompt.
---@param body string|number|moonpool.Block
---@return moonpool.Message
function user(body) end
--- What the model is to have said, in a prompt.
---@param body string|number|moonpool.Block
---@return moonpool.Message
function assistant(body) end

---@class moonpool.Bytes
--- What is no text: the contents of a resource, or of `embed`.
---@param data string
---@param mime? string         "application/octet-stream", or what the resource says
---@return moonpool.Bytes
function bytes(data, mime) end

---@class moonpool.Block
---@class moonpool.BlockOptions
---@field audience? ("user"|"assistant")[]
---@field priority? number     0 to 1
---@field modified? string     ISO 8601

---@param s string|number|boolean
---@param options? moonpool.BlockOptions
---@return moonpool.Block
function text(s, options) end

---@param bytes string
---@param mime? string         "image/png"
---@param options? moonpool.BlockOptions
---@return moonpool.Block
function image(bytes, mime, options) end

---@param bytes string
---@param mime? string         "audio/wav"
---@param options? moonpool.BlockOptions
---@return moonpool.Block
function audio(bytes, mime, options) end

---@class moonpool.LinkOptions: moonpool.BlockOptions
---@field [1]? string          Its description
---@field name? string
---@field title? string
---@field description? string
---@field mime? string
---@field size? integer

--- A resource that the client may read by itself.
---@param uri string
---@param options? moonpool.LinkOptions
---@return moonpool.Block
function link(uri, options) end

--- A resource inside the answer.
---@param uri string
---@param body string|moonpool.Bytes|{ text?: string, bytes?: string, mime?: string }
---@param mime? string
---@return moonpool.Block
function embed(uri, body, mime) end

--- Ends the call: the model reads why. It is no fault and not logged as one.
---@param why any
function fail(why) end

--- Ends the call with a JSON-RPC error, which the client's program reads and not its model.
---@param code integer      -32602 (invalid params), -32603 (internal error), or your own outside -32768 to -32000
---@param message string
---@param data? any
function fail_request(code, message, data) end

--- Whoever follows this resource is told that it has changed.
---@param uri string
function resource_updated(uri) end

---@alias moonpool.Kind "tool"|"prompt"|"resource"
--- Puts a tool, prompt or resource there, for every client; they are told.
---@param kind moonpool.Kind
---@param name string       As its file is called
function enable(kind, name) end
--- Takes it away: it is as unknown.
---@param kind moonpool.Kind
---@param name string
function disable(kind, name) end
---@param kind moonpool.Kind
---@param name string
---@return boolean
function enabled(kind, name) end

--- Passes on what succeeded; fails with the reason of what did not: `local page = try(http.get(url))`.
---@generic T
---@param value T?
---@param why? any
---@return T
function try(value, why, ...) end

--- Waits, without holding anybody up.
---@param seconds number
function sleep(seconds) end

--- A value that runs `f` when its block ends, however it ends: `local _ <close> = closing(f)`. `f` may not wait.
---@param f fun()
---@return any
function closing(f) end

--- The gateway's log, for the operator; `call:log` is for the client.
---@class moonpool.lib.log
log = {}
---@param event string
---@param fields? table<string, string|number|boolean>
function log.debug(event, fields) end
---@param event string
---@param fields? table<string, string|number|boolean>
function log.info(event, fields) end
---@param event string
---@param fields? table<string, string|number|boolean>
function log.warn(event, fields) end
---@param event string
---@param fields? table<string, string|number|boolean>
function log.error(event, fields) end

---@class moonpool.HttpOptions
---@field headers? table<string, string|number|moonpool.Secret|string[]>
---@field query? table<string, string|number|boolean|(string|number)[]>  Goes to the end of the URL, encoded
---@field body? string
---@field json? any             The body, as JSON
---@field timeout? number       In seconds, from the first byte asked to the last one answered; else limits.http.time
---@field max? integer          Bytes of the body, decompressed; else limits.http.body
---@field follow? boolean       false: a redirect is the answer. Else up to five are followed, each within the grants

---@class moonpool.HttpRequest: moonpool.HttpOptions
---@field url string
---@field method? string

---@class moonpool.HttpStreamOptions: moonpool.HttpOptions
---@field method? string
---@field timeout? number       In seconds, until the answer begins
---@field idle? number          In seconds: how long nothing may come; without it, as long as the call lasts
---@field max_event? integer    Bytes of a line or an event; else 1 MiB

---@class moonpool.HttpAnswer
---@field status integer
---@field headers table<string, string>  By names in lower case; values of one name are joined by ", "
---@field url string            Where it came from in the end
---@field body string
local HttpAnswer = {}
--- The body, decoded.
---@return any value, string? why
function HttpAnswer:json() end
--- All values of a header.
---@param name string
---@return string[]
function HttpAnswer:values(name) end

---@class moonpool.HttpEvent
---@field event string          "message" unless it says otherwise
---@field data string
---@field id? string            The last id up to here

--- An answer whose body comes piece by piece. It is closed with its loop, with `<close>`, and with the call. In a loop, what goes
--- wrong fails the call, as `fail` does.
---@class moonpool.HttpStream
---@field status integer
---@field headers table<string, string>
---@field url string
---@field last_event_id? string
---@field retry? integer        Milliseconds after which to come again, if the server said so
local HttpStream = {}
---@return string[]
function HttpStream:values(name) end
--- For a loop: the bytes as they come.
---@return fun(): string?
function HttpStream:chunks() end
--- For a loop: the lines, without their ends.
---@return fun(): string?
function HttpStream:lines() end
--- For a loop: the events of a text/event-stream.
---@return fun(): moonpool.HttpEvent?
function HttpStream:events() end
--- The next bytes, nil at the end; or nil, why.
---@return string? bytes, string? why
function HttpStream:read() end
--- All that is left; or nil, why.
---@return string? text, string? why
function HttpStream:text() end
---@return any value, string? why
function HttpStream:json() end
function HttpStream:close() end

--- Asks other servers, where the grants of moonpool.yaml let this script: `scripts: {allow: {net: ["api.example.com:443"]}}`.
--- Waits without holding anybody up. Gives an answer, whatever its status; or nil and why there is none.
---@class moonpool.lib.http
http = {}
---@param url string
---@param options? moonpool.HttpOptions
---@return moonpool.HttpAnswer? answer, string? why
function http.get(url, options) end
---@param url string
---@param options? moonpool.HttpOptions
---@return moonpool.HttpAnswer? answer, string? why
function http.post(url, options) end
---@param url string
---@param options? moonpool.HttpOptions
---@return moonpool.HttpAnswer? answer, string? why
function http.put(url, options) end
---@param url string
---@param options? moonpool.HttpOptions
---@return moonpool.HttpAnswer? answer, string? why
function http.patch(url, options) end
---@param url string
---@param options? moonpool.HttpOptions
---@return moonpool.HttpAnswer? answer, string? why
function http.delete(url, options) end
---@param url string
---@param options? moonpool.HttpOptions
---@return moonpool.HttpAnswer? answer, string? why
function http.head(url, options) end
---@param request moonpool.HttpRequest
---@return moonpool.HttpAnswer? answer, string? why
function http.request(request) end
--- The same, read while it comes: `for event in try(http.stream(url)):events() do … end`.
---@param url string
---@param options? moonpool.HttpStreamOptions
---@return moonpool.HttpStream? stream, string? why
function http.stream(url, options) end

--- Runs functions side by side, 64 at most, and waits for all of them: what each returned, in order. They belong to this call: called off with
--- it, and its limits count what they take together. An error of one, `fail` among them, ends the others and is an error here.
---@param functions (fun(): any, string?)[]
---@return { [1]: any, [2]: string? }[]
function parallel(functions) end

---@class moonpool.SqliteTransaction
---@field query fun(self, sql: string, params?: table): table[]?, string?      rows by column name; NULL is json.null
---@field one fun(self, sql: string, params?: table): table?, string?          the first row, or nil
---@field exec fun(self, sql: string, params?: table): integer?, any                  how many rows changed, the last inserted one's id

---@class moonpool.Sqlite: moonpool.SqliteTransaction
---@field transaction fun(self, f: fun(tx: moonpool.SqliteTransaction): any, string?): any, string?    undone where f fails or gives nil, why
---@field close fun(self)                                                      until the next statement

--- SQLite databases, where grants let this script read or write: `scripts: {allow: {write: ["data/"]}}`. Each has a thread of its own;
--- statements wait without holding anybody up, and end with their call. Parameters are bound: a list for `?`, a table for `:name`.
---@class moonpool.lib.sqlite
sqlite = {}
--- ":memory:" is one of its own. Reads alone where writing is not granted. `setup` runs whenever the file is opened.
---@param path string
---@param options? { setup?: string }
---@return moonpool.Sqlite? database, string? why
function sqlite.open(path, options) end
--- A parameter that SQLite keeps as a blob; texts are kept as text.
---@param bytes string
---@return table
function sqlite.blob(bytes) end

---@class moonpool.Job
---@field [1] string                    what it does
---@field [2] fun(call: moonpool.Call): any, string?
---@field every number                  seconds, 0.1 to 30 days
---@field timeout? number               limits.call.time
---@field enabled? boolean

-- -- policies -----------------------------------------------------------------------------------------------------------------------

--- The call as a policy sees it: all of moonpool.Call, and this. Only `args` may be set.
---@class moonpool.Turn: moonpool.Call
---@field kind "tool"|"resource"|"prompt"
---@field name string            The tool's, resource's or prompt's
---@field args table             What it will be called with: a resource's are the values in its URI
---@field uri? string            What is read, where that is a resource
---@field phase? "prepare"|"run" For a tool that has `prepare`: the policy is around both

--- What a policy is around: names, in which `*` stands for anything; resources by their URIs. Without any: everything.
---@class moonpool.Around
---@field tools? string[]
---@field resources? string[]
---@field prompts? string[]
---@field order? number          Less is further out; 0 by default, then by name

---@class moonpool.Policy: moonpool.Around
---@field [1] string|fun(call: moonpool.Turn, next: fun(call?: moonpool.Turn): any, any): any, any
---@field [2]? fun(call: moonpool.Turn, next: fun(call?: moonpool.Turn): any, any): any, any

--- A file of scripts/policy: one function around calls of tools, reads of resources and uses of prompts. `next(call)` goes on, and
--- gives what came of it; `fail` refuses; what the function returns is the result.
---@param spec moonpool.Policy
function policy(spec) end

---@alias moonpool.CountedBy "principal"|"tool"|"address"|"all"|fun(call: moonpool.Turn): string|number

---@class moonpool.Limit: moonpool.Around
---@field rate number            So many calls …
---@field per? number            … in so many seconds; 1 by default
---@field burst? integer         As many at once after a rest; `rate` by default
---@field by? moonpool.CountedBy|moonpool.CountedBy[]  Who shares one limit; "principal" by default: without a name, an address
---@field answer? "error"|"status"  What a tool's client gets: an error its model reads (the default), or HTTP's 429

--- A policy that lets so many calls through, of all workers together: a bucket that fills steadily.
---@param spec moonpool.Limit
function limit(spec) end

---@class moonpool.Quota: moonpool.Around
---@field most integer           So many calls …
---@field per? "hour"|"day"|"month"  … in one of these, UTC; "day" by default
---@field by? moonpool.CountedBy|moonpool.CountedBy[]
---@field answer? "error"|"status"

--- A policy that lets so many calls through in an hour, a day, a month.
---@param spec moonpool.Quota
function quota(spec) end

--- A file of scripts/jobs: runs every so often, the first time soon after the start, on one worker, never twice at once.
---@param spec moonpool.Job
---@return table
function job(spec) end

--- JSON values by key, in memory, shared by all workers: for counters, caches, what scripts tell each other. Bounded: store.entries and
--- store.bytes of moonpool.yaml. With store.file they outlive a restart; a process that is killed may lose the last hundredth of a second.
---@class moonpool.lib.store
store = {}
---@param key string
---@param value any                    anything that json.encode takes
---@param options? { ttl?: number }    seconds that it is kept
---@return true? done, string? why     "full"
function store.set(key, value, options) end
---@param key string
---@return any                         nil where there is none
function store.get(key) end
--- Sets it where there is none; else false.
---@param key string
---@param value any
---@param options? { ttl?: number }
---@return boolean? done, string? why
function store.add(key, value, options) end
--- Adds to a whole number, 0 where there is none. `ttl` is a new key's alone.
---@param key string
---@param by? integer                  1
---@param options? { ttl?: number }
---@return integer? sum, string? why
function store.incr(key, by, options) end
---@param key string
function store.delete(key) end
--- Keys that begin with `prefix`, sorted; at most 1000 unless `most` says otherwise.
---@param prefix? string
---@param most? integer
---@return string[]
function store.list(prefix, most) end

--- Hashes, in hex; in bytes where "bytes" follows. Of at most 16 MiB at once.
---@class moonpool.lib.digest
digest = {}
---@param bytes string
---@param form? "hex" | "bytes"
---@return string
function digest.sha256(bytes, form) end
---@param bytes string
---@param form? "hex" | "bytes"
---@return string
function digest.sha512(bytes, form) end
---@param bytes string
---@param form? "hex" | "bytes"
---@return string
function digest.sha1(bytes, form) end
---@param bytes string
---@param form? "hex" | "bytes"
---@return string
function digest.md5(bytes, form) end
---@param kind "sha256" | "sha512" | "sha1" | "md5"
---@param key string
---@param bytes string
---@param form? "hex" | "bytes"
---@return string
function digest.hmac(kind, key, bytes, form) end
--- Whether two secrets are the same, in a time that does not tell where they differ.
---@param a string
---@param b string
---@return boolean
function digest.equal(a, b) end

---@class moonpool.lib.base64
base64 = {}
---@param bytes string
---@return string
function base64.encode(bytes) end
---@param text string
---@return string? bytes, string? why
function base64.decode(text) end
--- The alphabet for URLs, without padding.
---@param bytes string
---@return string
function base64.url_encode(bytes) end
---@param text string
---@return string? bytes, string? why
function base64.url_decode(text) end

--- `uuid()` is random (version 4); `uuid.v7()` sorts by the time it was made.
---@class moonpool.Uuid
---@field v4 fun(): string
---@field v7 fun(): string
---@overload fun(): string
uuid = {}

---@class moonpool.lib.time
time = {}
---@return number                      seconds since 1970, with a fraction
function time.now() end
---@return number                      seconds of a clock that is never set
function time.monotonic() end
--- RFC 3339 in UTC, such as "2026-07-28T12:00:00Z".
---@param seconds? number              now
---@return string
function time.format(seconds) end
---@param text string
---@return number? seconds, string? why
function time.parse(text) end

---@class moonpool.Uri
---@field scheme? string
---@field userinfo? string
---@field host? string
---@field port? integer
---@field path? string
---@field query? string | table        uri.build takes a table, too
---@field fragment? string

---@class moonpool.lib.uri
uri = {}
---@param text string
---@return moonpool.Uri? parts, string? why
function uri.parse(text) end
---@param parts moonpool.Uri
---@return string
function uri.build(parts) end
--- Fit for any place in a URI: "/" and "&" are encoded, too.
---@param text string | number
---@return string
function uri.encode(text) end
---@param text string
---@return string? decoded, string? why
function uri.decode(text) end
--- A table as "a=1&b=x%20y"; a text as the table.
---@param fields table | string
---@return string | table | nil query, string? why
function uri.query(fields) end
--- Where `reference` leads when it stands in `base`.
---@param base string
---@param reference string
---@return string? uri, string? why
function uri.join(base, reference) end

---@class moonpool.Regex
---@field test fun(self, text: string): boolean?, string?
---@field find fun(self, text: string, init?: integer): integer?, integer | string | nil, ...
---@field match fun(self, text: string, init?: integer): string?, ...
---@field gmatch fun(self, text: string): fun(): string?, ...
---@field gsub fun(self, text: string, replacement: string | table | function, most?: integer): string?, integer | string

--- Verifies tokens that others issued (JWT, RFC 7519): signature, issuer, audience, times. Nothing in a token's header is followed.
---@class moonpool.lib.jwt
jwt = {}

---@class moonpool.VerifierOptions
---@field issuer string | string[] | false       The `iss` of its tokens, exactly; false: of any issuer whose key is known
---@field audience string | string[] | false     Who tokens must be for, one of these; false: for anybody
---@field jwks? string | table                    The URL of the issuer's keys, or the keys; without any of these four the issuer's metadata name it
---@field key? string                             A public key, or a certificate, in PEM
---@field keys? table<string | integer, string>   Several, by their `kid` or without
---@field key_file? string                        A file of PEM, or of a JWK Set, read again when it changes; the script needs a grant to read it
---@field algorithms? string[]                    Default: RS256 to 512, PS256 to 512, ES256 to 512, EdDSA, Ed25519
---@field leeway? number                          Seconds by which clocks may differ (default 60)
---@field required? string[]                      Claims that must be there, beside `exp`
---@field refetch? number                         The least seconds between fetches for keys that are not known (default 30)
---@field refresh? number                         Keys are fetched again after so many seconds (default 600)
---@field max_age? number                         Keys that cannot be fetched again are used for so long (default 86400)
---@field cache? integer                          Tokens that are remembered, by their SHA-256 (default 4096)
---@field plain_http? boolean                     Keys may come over http, which anybody on the way can change

---@class moonpool.Verifier
local Verifier = {}
--- Takes any value and never raises. "unavailable": the keys cannot be had now, which says nothing of the token.
---@param token any
---@return table? claims, string? why, "unavailable"? kind
function Verifier:verify(token) end

---@param options moonpool.VerifierOptions
---@return moonpool.Verifier
function jwt.verifier(options) end

--- A request, before anything of it is done. Good until the script has decided.
---@class moonpool.Request
---@field method string                 "POST"
---@field path string                   "/mcp", without the query
---@field headers table<string, string> By name, in any case; several of a name with ", " between them. Nothing lists them
---@field bearer? string                The token of `Authorization: Bearer …`, if it has the form of one
---@field peer string                   "127.0.0.1", "unix": who connected, which may be a proxy
---@field tls? moonpool.RequestTls      The client's certificate, where it has shown one

---@class moonpool.RequestTls
---@field subject string                "CN=ci,O=Example"
---@field issuer string
---@field serial string
---@field fingerprint string            SHA-256, in hexadecimal digits
---@field sans string[]                 "DNS:ci.example.com"
---@field expires integer                Seconds since 1970: the handshake alone has looked at it, the connection may last longer

--- Whom a request is from, as an auth script says it.
---@class moonpool.WhoAsks
---@field id string
---@field scopes? string[]
---@field claims? table                 For tools and policies: anything JSON can say
---@field issuer? string                With the next two: what sessions and tasks are bound to; without them, the id
---@field subject? string
---@field client? string
---@field expires? number               Seconds since 1970: then its event streams end

---@class moonpool.AuthSpec
---@field [1] fun(request: moonpool.Request): moonpool.WhoAsks?, string?, number?   Who asks; or nil, why, and seconds where it could not be found out
---@field issuer? string                Where tokens come from: clients are sent there
---@field askable? string[]             Scopes that they may ask for there, when a tool needs one; default: any
---@field realm? string
---@field implies? table<string, string[]>        A scope, and the scopes it stands for
---@field scopes_supported? string[]

---@class moonpool.Auth

--- What a script in auth/ returns: who asks. The first script that names somebody decides; where none does it is 401.
---@class moonpool.lib.auth
---@overload fun(spec: moonpool.AuthSpec): moonpool.Auth
auth = {}

--- What several of these have in common.
---@class moonpool.AuthOptions
---@field realm? string
---@field implies? table<string, string[]>        A scope, and the scopes it stands for
---@field scopes_supported? string[]
---@field askable? string[]                       Scopes that clients may ask for, when a tool needs one; default: any

---@class moonpool.AuthKeysOptions: moonpool.AuthOptions
---@field keys? table<string, { sha256: string, scopes?: string[], expires?: string }>   By their names
---@field file? string                            A file of lines as `moonpool key new` prints them; the script needs a grant to read it
---@field store? string                           What their names in the store begin with; the SHA-256 follows
---@field header? string                          Default "x-api-key"; `Authorization: Bearer` is good too
---@field prefix? string                          What ids begin with (default "key:")
--- API keys, of which only the SHA-256 is kept.
---@param options moonpool.AuthKeysOptions
---@return moonpool.Auth
function auth.keys(options) end

---@class moonpool.AuthBearerOptions: moonpool.AuthOptions
---@field secret string | moonpool.Secret         16 characters or more
---@field id? string                              Default "bearer"
---@field scopes? string[]
--- Whoever knows the one secret.
---@param options moonpool.AuthBearerOptions
---@return moonpool.Auth
function auth.bearer(options) end

---@class moonpool.AuthJwtOptions: moonpool.VerifierOptions, moonpool.AuthOptions
---@field [1]? fun(claims: table): table?, string?   Makes the principal, where `sub`, `scope` and `client_id` do not say it
---@field audience? string | string[] | false     Default: the endpoints below `public_url`
--- Whoever brings a token of the issuer for this server.
---@param options moonpool.AuthJwtOptions
---@return moonpool.Auth
function auth.jwt(options) end

---@class moonpool.AuthIntrospectionOptions: moonpool.AuthOptions
---@field [1]? fun(claims: table): table?, string?
---@field url string                              Where the issuer is asked about a token (RFC 7662)
---@field client_id string
---@field client_secret string | moonpool.Secret
---@field audience? string | string[] | false     Default: the endpoints below `public_url`
---@field issuer? string | string[]               The `iss` of its answers
---@field cache? number                           Seconds for which a good answer counts (default 60)
---@field negative? number                        And another (default 10)
---@field plain_http? boolean
--- Whoever brings a token that its issuer knows.
---@param options moonpool.AuthIntrospectionOptions
---@return moonpool.Auth
function auth.introspection(options) end

---@class moonpool.AuthTlsClient
---@field id string
---@field scopes? string[]
---@field subject? string                         As in "CN=ci,O=Example"
---@field issuer? string                          Where client_ca has several, as in "CN=Our CA"
---@field san? string                             As in "DNS:ci.example.com"
---@field fingerprint? string                     SHA-256
---@class moonpool.AuthTlsOptions: moonpool.AuthOptions
---@field clients moonpool.AuthTlsClient[]
--- Whoever proves a certificate that stands in the list.
---@param options moonpool.AuthTlsOptions
---@return moonpool.Auth
function auth.tls(options) end

---@class moonpool.AuthProxyOptions: moonpool.AuthOptions
---@field from string[]                           Addresses and networks of the proxy, as in "10.1.2.0/24"; "unix"
---@field header? string                          Default "x-forwarded-user"
---@field scopes_header? string
---@field scopes? string[]                        What all of them may do
--- Whom a proxy in front names in a header.
---@param options moonpool.AuthProxyOptions
---@return moonpool.Auth
function auth.proxy(options) end

--- Regular expressions as JSON Schema and JavaScript have them, in Unicode. One that takes too long on a text gives nil, "limit".
---@class moonpool.lib.regex
regex = {}
---@param expression string
---@param flags? string                "i" minds no case, "m" lets ^ and $ match at lines, "s" lets '.' match their ends
---@return moonpool.Regex? regex, string? why
function regex.new(expression, flags) end

--- Files, where the grants of moonpool.yaml let this script: `scripts: {allow: {read: ["data/"], write: ["data/out/"]}}`. Relative
--- paths begin at the folder of moonpool.yaml; no link leads out of a grant. Waits without holding anybody up. Gives nil and why
--- where something cannot be done.
---@class moonpool.lib.fs
fs = {}
--- The whole file, at most limits.fs.file.
---@param path string
---@return string? text, string? why
function fs.read(path) end
--- Replaces the file at once: who reads it meanwhile sees the old text or the new one. `append` adds to its end.
---@param path string
---@param text string
---@param options? { append?: boolean }
---@return true? done, string? why
function fs.write(path, text, options) end
--- The sorted names in a folder; those of folders end in "/".
---@param path string
---@return string[]? names, string? why
function fs.list(path) end

---@class moonpool.FileInfo
---@field type "file"|"folder"|"other"
---@field size integer
---@field modified number       Seconds since 1970

---@param path string
---@return moonpool.FileInfo? info, string? why
function fs.stat(path) end
---@param path string
---@return boolean? there, string? why
function fs.exists(path) end
--- A file or an empty folder.
---@param path string
---@return true? done, string? why
function fs.remove(path) end
--- A folder, and those above it that are missing; fine when it is there.
---@param path string
---@return true? done, string? why
function fs.mkdir(path) end

---@class moonpool.ExecOptions
---@field stdin? string|moonpool.Secret
---@field timeout? number       In seconds; else limits.exec.time
---@field env? table<string, string|number|moonpool.Secret>  Besides PATH, HOME, LANG, LC_ALL, TZ, TMPDIR, USER and LOGNAME
---@field cwd? string           A folder that may be read; else that of moonpool.yaml
---@field max? integer          Bytes of each output; else limits.exec.output

---@class moonpool.ExecResult
---@field status? integer       nil where a signal ended it
---@field signal? integer
---@field stdout string
---@field stderr string

--- Runs a program that is granted (`scripts: {allow: {run: ["git", "/usr/bin/jq"]}}`) with these words; no shell reads them. It
--- ends with the call, and so does all that it started. nil and why where it did not run to its end.
---@param argv (string|number|moonpool.Secret)[]
---@param options? moonpool.ExecOptions
---@return moonpool.ExecResult? result, string? why
function exec(argv, options) end

--- An environment variable that is granted (`scripts: {allow: {env: ["ORDERS_URL", "APP_*"]}}`); nil and why, or `default` where
--- it is not set.
---@param name string
---@param default? string
---@return string? value, string? why
function env(name, default) end

--- A text that prints as *** everywhere. Headers of http, and words, `env` and `stdin` of exec, take what is in it; joined with `..`
--- it stays a secret.
---@class moonpool.Secret
---@operator concat(string|moonpool.Secret): moonpool.Secret

--- Like env, as a secret.
---@param name string
---@return moonpool.Secret? secret, string? why
function secret(name) end

---@class moonpool.lib.json
json = {}
json.null = nil ---@type userdata      What null decodes to
json.array_mt = {}                     -- the metatable of arrays: an empty table with it encodes as []
json.object_mt = {}                    -- an empty or list-like table with it encodes as an object
json.empty_array = {}
---@param value any
---@return string
function json.encode(value) end
---@param text string
---@return any value, string? why
function json.decode(text) end
---@generic T: table
---@param list T
---@return T
function json.array(list) end
---@generic T: table
---@param fields T
---@return T
function json.object(fields) end

seconds = 1
minutes = 60
hours = 3600
