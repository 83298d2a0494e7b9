---@meta
-- Types of the global names that moonpool scripts can use, for editors (LuaLS). This file is never run.
error("moonpool.d.lua holds types for editors: scripts have these names without requiring anything")

--- The client's request, and the functions that reach the client while the handler runs. It ends with its answer: later use raises
--- "this call has ended".
---@class moonpool.Call
---@field revision moonpool.Revision    The protocol revision that the client uses
---@field method string                 "tools/call", "resources/read", "prompts/get", "completion/complete"
---@field principal moonpool.Principal  The identity that authentication gave the request
---@field address? string              The client's address: "127.0.0.1", "unix"; nil over stdio and for background work
---@field client? table                 The client's own description: name, version
---@field capabilities? table           The client's capabilities
---@field meta? table                   `_meta` of the request
---@field task? string                 The id of the MCP task that this call works for
---@field cancelled boolean              True once the client has cancelled the call
---@field overloaded boolean             True while the worker refuses requests because they wait too long: answer from a cache, leave out what is slow
local Call = {}

--- The identity that authentication gave a request. Scripts cannot change it; `tostring` returns its id.
---@class moonpool.Principal
---@field id string          "anonymous" without authentication; "local" for the user who runs the gateway over stdio or a command
---@field scopes string[]    The scopes of the principal; "*" stands for all scopes
---@field claims? table      Other facts from authentication, such as the claims of a token

---@alias moonpool.Revision "2024-11-05"|"2025-03-26"|"2025-06-18"|"2025-11-25"|"2026-07-28"
---@alias moonpool.Level "debug"|"info"|"notice"|"warning"|"error"|"critical"|"alert"|"emergency"

--- Sends a progress notification, if the client asked for progress. `progress` must increase with each call.
---@param progress number
---@param total? number
---@param message? string
function Call:progress(progress, total, message) end

--- Sends a log message to the client if the client asked for messages of this level, by logging/setLevel or, in 2026-07-28, in the request.
--- With `log.level: debug` the gateway writes the message to its own log, too.
---@param level moonpool.Level
---@param data any            Any value that can be encoded as JSON
---@param logger? string      The name of the part of the program that logs
function Call:log(level, data, logger) end

--- Closes the client's connection while the call goes on, for work that takes long. The client reconnects to get the answer.
--- Returns false and changes nothing where the client cannot reconnect: in every revision but 2025-11-25, and over HTTP+SSE.
---@param seconds? number   The client reconnects after this time; 1 by default
---@return boolean
function Call:detach(seconds) end

--- Ends the call with an error that names the missing capabilities, unless the client has all of these.
---@param ... string  "sampling", "elicitation", "elicitation.url", "roots", "extensions.<id>"
function Call:require(...) end

--- Ends the call unless its principal has all of these scopes: for a handler whose arguments decide which scopes are needed. The
--- client gets 403 and may request the scopes if the auth scripts offer them and no part of the answer was sent; else the tool fails.
---@param ... string  "orders:write"
function Call:needs(...) end

--- Asks the user to fill in a form. In 2026-07-28 the handler runs again from its start when the answer arrives. So code before
--- a question must be safe to run twice; wrap other code in `call:once`.
---@param key string        The name of the question; it must be equal in every run of the handler
---@param message string
---@param fields table<string, moonpool.Type>
---@return table? filled_in
---@return string? why      "declined", "cancelled", "unsupported", "invalid", or the client's error message
function Call:elicit(key, message, fields) end

--- Sends the user to a web page, for input that a form must not ask for, such as passwords. True means that the user agreed to open
--- the page; it does not mean that the user finished there.
---@param key string
---@param message string
---@param url string        http or https, without credentials
---@return true? went
---@return string? why      "declined", "cancelled", "unsupported"
function Call:elicit_url(key, message, url) end

--- Notifies the client that the user has finished at the page of this key (2025-11-25).
---@param key string
function Call:url_done(key) end

--- Ends the call with an error that asks the client to show a web page to the user and to repeat the call afterwards. Call it until the
--- user has finished at the page.
---@param key string
---@param message string
---@param url string
function Call:needs_url(key, message, url) end

--- Sets the status text of an MCP task, for people. Does nothing in a call that is not a task.
---@param message string
function Call:status(message) end

--- Asks the client's language model for a message.
---@param key string
---@param request string|table   The user's text, or the parameters of sampling/createMessage
---@return table? answer         role, content, model
---@return string? why
function Call:sample(key, request) end

--- Asks the client for its roots: the folders or URIs that it works in.
---@param key? string
---@return table[]? roots   Each has a `uri` and may have a `name`
---@return string? why
function Call:roots(key) end

--- Runs `f` once per call, even if the handler runs again after a question. The result of `f` must be encodable as JSON.
---@generic T
---@param key string
---@param f fun(): T
---@return T
function Call:once(key, f) end

--- Asks the client several questions at once.
---@param questions table<string, moonpool.Question>
---@return table<string, any> answers
---@return table<string, string> whys   For each missing answer, the reason
function Call:ask(questions) end

--- A question for `call:ask`, made by a function of `ask`.
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
---@field [1]? string          The description that the model reads
---@field description? string
---@field title? string
---@field optional? boolean    The argument may be absent
---@field default? any         The value of an absent argument
---@field examples? any[]
---@field deprecated? boolean
---@field read_only? boolean
---@field write_only? boolean
---@field also? moonpool.Type[]  Further types that the value must match: `also = { t.none_of { t.const "root" } }`
---@field header? string       Clients also send the argument in the header Mcp-Param-<name> (string, integer, boolean)

---@class moonpool.StringOptions: moonpool.Options
---@field min? integer
---@field max? integer
---@field pattern? string      A regular expression, as in JSON Schema
---@field complete? moonpool.Completion  Completions of a prompt's argument
---@field format? "date"|"date-time"|"time"|"duration"|"email"|"hostname"|"ipv4"|"ipv6"|"uri"|"uuid"|"regex"|string
---@field encoding? "base64"|string  The encoding of bytes in the text; in the schema for clients, not checked
---@field mime? string         The media type of the text; in the schema for clients, not checked

---@class moonpool.NumberOptions: moonpool.Options
---@field min? number
---@field max? number
---@field above? number        The value must be greater than this
---@field below? number        The value must be less than this
---@field step? number         The value must be a multiple of this

---@class moonpool.ListOptions: moonpool.Options
---@field min? integer
---@field max? integer
---@field unique? boolean
---@field contains? moonpool.Type  At least one item must match this type
---@field min_contains? integer
---@field max_contains? integer

---@class moonpool.MapOptions: moonpool.Options
---@field min? integer
---@field max? integer
---@field keys? moonpool.Type   The type that each key must match
---@field patterns? table<string, moonpool.Type>  The types of fields whose names match a regular expression

---@class moonpool.ObjectOptions: moonpool.Options
---@field open? boolean        Other fields are allowed
---@field rest? moonpool.Type  Other fields are allowed if they match this type
---@field min? integer         The least number of fields
---@field max? integer
---@field patterns? table<string, moonpool.Type>  The types of fields whose names match a regular expression
---@field needs? table<string, string[]>  If the named field is present, the listed fields must be present, too

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

--- A list whose items all have one type.
---@param item moonpool.Type
---@param options? moonpool.ListOptions|string
---@return moonpool.Type
function t.list(item, options) end

--- A list whose items have different types, by position: `t.tuple { t.number, t.number, rest = t.string }`. Without `rest` no further
--- item is allowed.
---@param items table
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.tuple(items, options) end

--- An object with any keys, whose values all have one type.
---@param value moonpool.Type
---@param options? moonpool.MapOptions|string
---@return moonpool.Type
function t.map(value, options) end

--- An object with these fields. A field is required unless it is optional or has a default.
---@param fields table<string, moonpool.Type>
---@param options? moonpool.ObjectOptions|string
---@return moonpool.Type
function t.object(fields, options) end

--- Exactly this value.
---@param value any
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.const(value, options) end

--- One of the listed values: `t.one_of { "celsius", "fahrenheit", default = "celsius" }`. With types, exactly one type must match:
--- `t.one_of { t.const("c", { title = "Celsius" }), t.const("f", { title = "Fahrenheit" }) }`.
---@param choices table
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.one_of(choices, options) end

--- The value must match at least one of the types.
---@param types moonpool.Type[]
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.any_of(types, options) end

--- The value must match all of the types. An object may have the fields of all of them together.
---@param types moonpool.Type[]
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.all_of(types, options) end

--- The value must match none of the types.
---@param types moonpool.Type[]
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.none_of(types, options) end

--- A value that matches `condition` must match `yes`; any other value must match `no`. Use it in `also` of an object, or in t.all_of.
---@param condition moonpool.Type
---@param yes moonpool.Type
---@param no? moonpool.Type
---@return moonpool.Type
function t.when(condition, yes, no) end

--- A value of `type`, or null, which scripts get as json.null.
---@param type moonpool.Type
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.nullable(type, options) end

--- A named type that is used in several places, or inside itself (recursion):
--- `t.define("tree", function(tree) return t.object { name = t.string, leaves = t.optional(t.list(tree)) } end)`.
---@param name string
---@param of moonpool.Type|fun(type: moonpool.Type): moonpool.Type
---@return moonpool.Type
function t.define(name, of) end

--- The type of a field that may be missing.
---@param type moonpool.Type
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.optional(type, options) end

--- A type given as JSON Schema (2020-12), for rules that the other functions of `t` cannot express.
---@param schema table
---@param options? moonpool.Options|string
---@return moonpool.Type
function t.schema(schema, options) end

---@class moonpool.Tool
---@field [1] string                                              The description that the model reads
---@field [2] fun(args: table, call: moonpool.Call): any, string?  The handler: runs for each call and returns the result, or nil and a reason
---@field input? table<string, moonpool.Type>|moonpool.Type       The arguments; each is required unless it has `optional` or `default`
---@field output? table<string, moonpool.Type>|moonpool.Type      The type of the result; the gateway checks each result against it
---@field title? string                                           A name for people
---@field timeout? number           In seconds: `30 * seconds`; limits.call.time ends a call that is no background task, if it is less
---@field concurrency? integer                                    Limit of calls of this tool that run at once, over all workers; further calls wait in order
---@field requires? string[]                                      Capabilities that the client must have
---@field scopes? string[]                                        A principal sees and uses it only with all of these scopes
---@field visible? fun(principal: moonpool.Principal): boolean?   True if the principal may see and use it, for rules that scopes cannot express; must not wait
---@field task? "optional"|"required"                            The call becomes an MCP task, for clients that support tasks
---@field prepare? fun(args: table, call: moonpool.Call): any, string?  Runs before the call becomes a task; its result replaces args
---@field poll? number                                            The interval at which a client should poll the task, in seconds
---@field enabled? boolean                                        false: hidden until a script runs enable("tool", name)
---@field read_only? boolean                                      The tool changes nothing
---@field destructive? boolean                                    The tool may delete or overwrite data
---@field idempotent? boolean                                     Calling it twice with equal arguments has the effect of one call
---@field open_world? boolean                                     The tool reaches systems outside this machine
---@field open? boolean                                           Arguments that `input` does not name are allowed
---@field icons? moonpool.Icon[]
---@field meta? table<string, any>                                The `_meta` of the tool's definition
---@field ui? string|{ [1]: string, visibility?: ("model"|"app")[] }  The ui:// resource that clients show with the tool's results (MCP Apps)

---@class moonpool.Icon
---@field src string           https: or data:
---@field mimeType? string
---@field sizes? string[]      "48x48", "any"
---@field theme? "light"|"dark"

--- A tool: `return tool { "What it does.", input = { … }, function(args, call) … end }`.
---@param spec moonpool.Tool
---@return moonpool.Tool
function tool(spec) end

--- Values for an argument while the user types. With a list, the values that begin with the typed text are offered. A function returns
--- the values to offer and their total number; it gets the typed text and the other arguments so far.
---@alias moonpool.Completion string[]|fun(prefix: string, args: table<string, string>, call: moonpool.Call): string[]?, integer?

---@class moonpool.Resource
---@field [1] string                                              The description that the model reads
---@field [2] string|fun(vars: table<string, string>, call: moonpool.Call): any, string?  The contents, or a function that returns them; nil means "not found"
---@field uri string              "orders://eu/latest", or a template: {x}, {+x} with slashes, {/x} optional, {?a,b}
---@field mime? string
---@field ttl? number             The time for which clients may cache the contents, in seconds: `30 * seconds`
---@field public public? boolean  The contents are equal for all principals, so shared caches may keep them
---@field complete? table<string, moonpool.Completion>  Completions by variable of the template
---@field list? fun(call: moonpool.Call): moonpool.Listed[]?, string?  The existing resources of a template, for resources/list
---@field title? string           A name for people
---@field timeout? number         In seconds
---@field requires? string[]      Capabilities that the client must have
---@field scopes? string[]        A principal sees and reads it only with all of these scopes
---@field visible? fun(principal: moonpool.Principal): boolean?  True if the principal may see and use it, for rules that scopes cannot express; must not wait
---@field icons? moonpool.Icon[]
---@field meta? table<string, any>
---@field ui? moonpool.Page       Permissions of a ui:// page (MCP Apps)
---@field enabled? boolean       false: hidden until a script runs enable("resource", name)
---@field size? integer           In bytes
---@field audience? ("user"|"assistant")[]
---@field priority? number        0 to 1
---@field modified? string        ISO 8601

--- One entry of the list of a template's resources: the values of the template's variables, or `uri`; and a description.
---@class moonpool.Listed
---@field uri? string            The whole URI, instead of the values of the variables
---@field name? string           Default: the last segment of its URI
---@field title? string          A name for people
---@field description? string    Default: that of the template
---@field mime? string           Default: that of the template
---@field size? integer          In bytes
---@field [string] any           The values of the template's variables: strings and integers

---@class moonpool.Page
---@field csp? { connectDomains?: string[], resourceDomains?: string[], frameDomains?: string[], baseUriDomains?: string[] }
---@field permissions? { camera?: boolean, microphone?: boolean, geolocation?: boolean, clipboardWrite?: boolean }
---@field domain? string
---@field prefersBorder? boolean

--- A resource: `return resource { "An order.", uri = "orders://{id}", function(vars, call) … end }`. The function returns
--- text, bytes(…), a table (JSON), or a list with bytes(…) or embed(…) in it.
---@param spec moonpool.Resource
---@return moonpool.Resource
function resource(spec) end

---@class moonpool.Prompt
---@field [1] string                                              The description that people read
---@field [2] string|fun(args: table<string, string>, call: moonpool.Call): any, string?  The messages, or a function that returns them
---@field args? table<string, moonpool.Type>                      t.string or t.one_of; required unless `optional` or `default`
---@field title? string                                           A name for people
---@field timeout? number                                         In seconds
---@field requires? string[]                                      Capabilities that the client must have
---@field scopes? string[]                                        A principal sees and uses it only with all of these scopes
---@field visible? fun(principal: moonpool.Principal): boolean?   True if the principal may see and use it, for rules that scopes cannot express; must not wait
---@field enabled? boolean                                        false: hidden until a script runs enable("prompt", name)
---@field icons? moonpool.Icon[]
---@field meta? table<string, any>

--- A prompt: `return prompt { "Review a change.", args = { … }, function(args, call) return { user "…" } end }`. A string is
--- one message of the user.
---@param spec moonpool.Prompt
---@return moonpool.Prompt
function prompt(spec) end

---@class moonpool.Message
--- A message of the user, in a prompt.
---@param body string|number|moonpool.Block
---@return moonpool.Message
function user(body) end
--- A message of the model, in a prompt.
---@param body string|number|moonpool.Block
---@return moonpool.Message
function assistant(body) end

---@class moonpool.Bytes
--- Binary data: the contents of a resource, or of `embed`.
---@param data string
---@param mime? string         Default: that of the resource, else "application/octet-stream"
---@return moonpool.Bytes
function bytes(data, mime) end

---@class moonpool.Block
---@class moonpool.BlockOptions
---@field audience? ("user"|"assistant")[]
---@field priority? number     0 to 1
---@field modified? string     ISO 8601

--- A text, for the model to read.
---@param s string|number|boolean
---@param options? moonpool.BlockOptions
---@return moonpool.Block
function text(s, options) end

--- An image: its bytes, not in Base64. Without `mime` it is "image/png".
---@param bytes string
---@param mime? string         "image/png"
---@param options? moonpool.BlockOptions
---@return moonpool.Block
function image(bytes, mime, options) end

--- A sound: its bytes, not in Base64. Without `mime` it is "audio/wav".
---@param bytes string
---@param mime? string         "audio/wav"
---@param options? moonpool.BlockOptions
---@return moonpool.Block
function audio(bytes, mime, options) end

---@class moonpool.LinkOptions: moonpool.BlockOptions
---@field [1]? string          Its description
---@field name? string          A name for programs; default: the last segment of the URI
---@field title? string         A name for people
---@field description? string
---@field mime? string
---@field size? integer

--- A link to a resource that the client may read: `link("notes://3", "Cars")`, or `link("notes://3", { "What we drive.", title = "Cars" })`.
---@param uri string
---@param options? string|moonpool.LinkOptions   Its name (default: the last segment of the URI), or a table of options
---@return moonpool.Block
function link(uri, options) end

--- A resource whose contents are part of the result.
---@param uri string
---@param body string|moonpool.Bytes|{ text?: string, bytes?: string, mime?: string }
---@param mime? string
---@return moonpool.Block
function embed(uri, body, mime) end

--- Ends the call with an expected error. The model reads `why`. The gateway does not log it as a fault of the script.
---@param why any
function fail(why) end

--- Ends the call with a JSON-RPC error. The client's program reads it; the model does not.
---@param code integer      -32602 (invalid params), -32603 (internal error), or your own outside -32768 to -32000
---@param message string
---@param data? any
function fail_request(code, message, data) end

--- Notifies the clients that subscribed to this resource that it has changed.
---@param uri string
function resource_updated(uri) end

---@alias moonpool.Kind "tool"|"prompt"|"resource"
--- Makes a tool, prompt or resource visible to all clients, and notifies them that the list changed.
---@param kind moonpool.Kind
---@param name string       Its name, which comes from the name of its file
function enable(kind, name) end
--- Hides a tool, prompt or resource from all clients. Requests that name it get the error for an unknown name.
---@param kind moonpool.Kind
---@param name string
function disable(kind, name) end
--- True if the tool, prompt or resource is switched on.
---@param kind moonpool.Kind
---@param name string
---@return boolean
function enabled(kind, name) end

--- Returns its arguments unless `value` is nil or false; then it ends the call as `fail(why)` does: `local page = try(http.get(url))`.
---@generic T
---@param value T?
---@param why? any
---@return T
function try(value, why, ...) end

--- Suspends the current task for this time. Other calls run meanwhile.
---@param seconds number
function sleep(seconds) end

--- Runs `f` when the block ends, also after an error or a cancel: `local _ <close> = closing(f)`. `f` may wait; after a cancel no longer
--- than two seconds.
---@param f fun()
---@return any
function closing(f) end

--- Writes to the gateway's log, which operators read. `call:log` sends log messages to the client.
---@class moonpool.lib.log
log = {}
---@param event any            A string, or a value that is written as JSON
---@param fields? any          Named values of the log line. A table is written as JSON, at most 512 bytes; a secret as `***`
function log.debug(event, fields) end
---@param event any            A string, or a value that is written as JSON
---@param fields? any          Named values of the log line. A table is written as JSON, at most 512 bytes; a secret as `***`
function log.info(event, fields) end
---@param event any            A string, or a value that is written as JSON
---@param fields? any          Named values of the log line. A table is written as JSON, at most 512 bytes; a secret as `***`
function log.warn(event, fields) end
---@param event any            A string, or a value that is written as JSON
---@param fields? any          Named values of the log line. A table is written as JSON, at most 512 bytes; a secret as `***`
function log.error(event, fields) end

---@class moonpool.HttpOptions
---@field headers? table<string, string|number|moonpool.Secret|string[]>
---@field query? table<string, string|number|boolean|(string|number)[]>  Encoded and appended to the URL
---@field body? string
---@field json? any             The body, as JSON
---@field timeout? number       Limit of the exchange in seconds; default: limits.http.time
---@field max? integer          Limit of the answer's body in bytes, decompressed; default: limits.http.body
---@field retry? integer        Repeats (at most 10) after 429, 502, 503, 504 or a failed connection, if the method is safe to repeat; within `timeout`
---@field retry_unsafe? boolean  true: `retry` repeats requests of any method
---@field follow? boolean       false: a redirect is returned as the answer. Default: at most five redirects are followed; each target needs a grant

---@class moonpool.HttpRequest: moonpool.HttpOptions
---@field url string
---@field method? string

---@class moonpool.HttpStreamOptions: moonpool.HttpOptions
---@field method? string
---@field timeout? number       Limit in seconds until the head of the answer arrives
---@field idle? number          Limit in seconds between two pieces of the body; default: none but the call's own time limit
---@field max_event? integer    Limit of one line or event in bytes; default: 1 MiB

---@class moonpool.HttpAnswer
---@field status integer
---@field headers table<string, string>  Keys are in lower case; several values of one header are joined by ", "
---@field url string            The URL of the answer, after redirects
---@field body string
local HttpAnswer = {}
--- Decodes the body as JSON. With `{ nulls = false }` members that are null are absent: useful for paging that ends with `"next": null`.
---@param options? moonpool.DecodeOptions
---@return any value, string? why
function HttpAnswer:json(options) end
--- All values of a header.
---@param name string
---@return string[]
function HttpAnswer:values(name) end

---@class moonpool.HttpEvent
---@field event string          The type of the event; "message" by default
---@field data string
---@field id? string            The last event id of the stream so far

--- An answer whose body is read in pieces. The body is closed at the end of a loop over it, by `<close>`, and at the end of the call. In a loop a failure ends the
--- call, as `fail` does.
---@class moonpool.HttpStream
---@field status integer
---@field headers table<string, string>
---@field url string
---@field last_event_id? string
---@field retry? integer        The server's reconnection time in milliseconds, if it sent one
local HttpStream = {}
--- All values of a header.
---@return string[]
function HttpStream:values(name) end
--- An iterator over the bytes of the body, in pieces as they arrive.
---@return fun(): string?
function HttpStream:chunks() end
--- An iterator over the lines of the body, without line ends.
---@return fun(): string?
function HttpStream:lines() end
--- An iterator over the events of a text/event-stream.
---@return fun(): moonpool.HttpEvent?
function HttpStream:events() end
--- Returns the next bytes of the body; nil at the end; or nil and the reason of a failure.
---@return string? bytes, string? why
function HttpStream:read() end
--- Returns the unread part of the body; or nil and the reason of a failure.
---@return string? text, string? why
function HttpStream:text() end
--- Decodes the unread part of the body as JSON.
---@param options? moonpool.DecodeOptions
---@return any value, string? why
function HttpStream:json(options) end
--- Ends the request. A stream is also closed at its end, and with its call.
function HttpStream:close() end

--- An HTTP client. A script needs a `net` grant for each host: `scripts: {allow: {net: ["api.example.com:443"]}}`.
--- Other calls run while a request waits. The functions return the answer, of any status; or nil and the reason why there is no answer.
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
--- Sends a request with any method, described by one table.
---@param request moonpool.HttpRequest
---@return moonpool.HttpAnswer? answer, string? why
function http.request(request) end
--- Sends a request and reads the body of the answer in pieces, as it arrives: `for event in try(http.stream(url)):events() do … end`.
---@param url string
---@param options? moonpool.HttpStreamOptions
---@return moonpool.HttpStream? stream, string? why
function http.stream(url, options) end

--- Runs at most 64 functions concurrently and waits for all of them. Returns the results of each, in order. The functions belong to this
--- call: a cancel of the call cancels them, and the limits of the call count their use of time and memory together. An error of one
--- function, also by `fail`, cancels the others and is raised here.
---@param functions (fun(): any, string?)[]
---@return { [1]: any, [2]: string? }[]
function parallel(functions) end

--- A metric of scripts.
---@class moonpool.Metric
---@field [1] string          The name, of a-z, 0-9 and _. /metrics shows it with `app_` before it, and that of a counter with `_total` behind it
---@field [2] string          What it counts, in one line
---@field labels? string[]    Names of at most 4 labels
---@field most? integer       Limit of its sets of labels, 1 to 1000 (100). All further sets count as `_other`

---@class moonpool.HistogramMetric : moonpool.Metric
---@field buckets? number[]   Upper bounds, at most 19, each above the one before it; the default suits seconds, from 0.001 to 60

---@class moonpool.Counter
---@field add fun(self: moonpool.Counter, value?: number, labels?: table<string, string|number|boolean>)   Adds 0 or more; 1 if there is no value

---@class moonpool.Gauge
---@field set fun(self: moonpool.Gauge, value: number, labels?: table<string, string|number|boolean>)      Sets the number, for all workers
---@field add fun(self: moonpool.Gauge, value?: number, labels?: table<string, string|number|boolean>)     Adds, also what is below 0; 1 if there is no value

---@class moonpool.Histogram
---@field observe fun(self: moonpool.Histogram, value: number, labels?: table<string, string|number|boolean>)

---@class moonpool.lib.metrics
metrics = {}
--- Declares a counter, a number that only rises, while the script loads. All workers add to it, and it goes on over reloads that keep its name and labels.
---@param spec moonpool.Metric
---@return moonpool.Counter
function metrics.counter(spec) end
--- Declares a gauge, a number that rises and falls, while the script loads.
---@param spec moonpool.Metric
---@return moonpool.Gauge
function metrics.gauge(spec) end
--- Declares a histogram, which counts values by size, while the script loads.
---@param spec moonpool.HistogramMetric
---@return moonpool.Histogram
function metrics.histogram(spec) end

--- A step of the call that runs, in its trace (`traces` of the configuration).
---@class moonpool.Span
---@field set fun(self: moonpool.Span, key: string, value: string|number|boolean)   Adds an attribute; a text above 1 KiB is cut
---@field event fun(self: moonpool.Span, name: string)   Adds an event that happens now

---@class moonpool.lib.trace
trace = {}
--- Runs f(span) as a step of the call's trace, and returns what `f` returns. An error of `f`, and nil with a reason, mark the step as failed; their
--- texts are not recorded. Steps inside it are below it. Where the call is not recorded, `f` runs all the same.
---@generic T
---@param name string                  1 to 128 bytes
---@param f fun(span: moonpool.Span): T
---@return T
function trace.span(name, f) end
--- The id of the trace, 32 hexadecimal digits; nil where the call is not recorded.
---@return string?
function trace.id() end

---@class moonpool.UpstreamResult
---@field text string          The texts of the content, joined by line ends
---@field structured? any      structuredContent
---@field content table[]      The content blocks
---@field is_error boolean     Always false: a result with isError gives nil and its text
---@field raw table            The whole result, in 2026-07-28

---@class moonpool.Upstream
---@field call fun(self, tool: string, args?: table, options?: { timeout: number? }): moonpool.UpstreamResult?, string?
---@field read fun(self, uri: string): { text: string?, contents: table[], raw: table }?, string?
---@field prompt fun(self, name: string, args?: table<string, string>): { text: string, messages: table[], raw: table }?, string?
---@field tools fun(self): table[]?, string?     The definitions of its tools, as it lists them. Before its first list it waits for that, within `list_wait`
---@field is_up fun(self): boolean     False while calls are refused because it is not there

---@class moonpool.UpstreamOptions
---@field definition? fun(def: table, kind: "tools"|"prompts"|"resources"|"templates"): table?   Changes a definition; nil hides the thing
---@field headers? fun(call: moonpool.Call): table<string, string|moonpool.Secret>?              Headers of the calls that are forwarded, over HTTP
---@field ask? fun(question: { method: string, params: table }, call: moonpool.Call): table?, string?   A question of the upstream to the client: returns it, perhaps changed; nil, why refuses it
---@field scopes? string[]|table<string, string[]>   Scopes that its things need: for all, or by patterns of the upstream's own names
---@field visible? fun(principal: moonpool.Principal): boolean                                    False hides its things

--- upstream "NAME": another MCP server, which `upstreams` of the config names, by its own names for things. It runs as the principal of the call. `only` and
--- `hide` apply, policies do not. Every failure is nil and a reason. In a file of scripts/upstreams/, upstream { … } says what is decided about one.
---@overload fun(options: moonpool.UpstreamOptions): table
---@param name string
---@return moonpool.Upstream
function upstream(name) end

---@class moonpool.SqliteTransaction
---@field query fun(self, sql: string, params?: table): table[]?, string?      Rows, with values by column name; NULL is json.null
---@field one fun(self, sql: string, params?: table): table?, string?          The first row, or nil
---@field exec fun(self, sql: string, params?: table): integer?, any                  The number of changed rows, and the id of the last inserted row

---@class moonpool.Sqlite: moonpool.SqliteTransaction
---@field transaction fun(self, f: fun(tx: moonpool.SqliteTransaction): any, string?): any, string?    Rolled back if f fails or returns nil and a reason
---@field close fun(self)                                                      Closes the file until the next statement; the data of ":memory:" is lost

--- SQLite databases. A script needs a `read` or `write` grant for the file: `scripts: {allow: {write: ["data/"]}}`. Each database has its
--- own thread; other calls run while a statement waits, and a statement is cancelled when its call ends. Parameters are bound: a list
--- for `?`, a table for `:name`.
---@class moonpool.lib.sqlite
sqlite = {}
--- Opens a database; read-only if only a `read` grant covers the path. `":memory:"` makes a new database in memory, which lasts as long as
--- the script holds it. The SQL of `setup` runs each time the file is opened. The first statement opens the file. The gateway may close an
--- unused file (32 are open), which drops its temporary tables. SQL may use the functions, virtual tables (FTS5, R-tree, JSON) and
--- pragmas that docs/explanation/permissions.md lists.
---@param path string
---@param options? { setup?: string }
---@return moonpool.Sqlite? database, string? why
function sqlite.open(path, options) end
--- Marks a parameter so that SQLite stores it as a blob; a plain string is stored as text.
---@param bytes string
---@return table
function sqlite.blob(bytes) end

--- A value, or nil. Of nil `why` says whether it is a failure: an error of the server ("WRONGTYPE …"), or a text that begins with `reason`:
--- "unavailable", if the command was not sent, or "unknown", if it was sent and not answered: it may have run, or may run yet. `reason` is
--- "error" for an error of the server. Nothing is sent twice.
---@class moonpool.Redis
---@field get fun(self, key: string|number): string?, string?, string?  The text at a key; nil if there is none
---@field set fun(self, key: string|number, value: string|number, options?: { ttl?: number, only?: "new"|"existing" }): boolean?, string?, string?  Stores a text, for `ttl` seconds if given; false if `only` prevented it
---@field call fun(self, command: string, ...: string|number): any, string?, string?  Sends any command: an integer, a text, a list or nil. In a list nil is json.null and an error is { error = why }
---@field pipeline fun(self, commands: (string|number)[][]): any[]?, string?, string?  Sends commands together, as { {"INCR", key}, {"EXPIRE", key, 60} }: the list of their replies, with errors as { error = why }
---@field transaction fun(self, commands: (string|number)[][]): any[]?, string?, string?  The same by MULTI and EXEC: the server runs no other commands between them
---@field eval fun(self, script: string, keys?: (string|number)[], args?: (string|number)[]): any, string?, string?  Runs a script in the server, by its hash where the server has it
---@field scan fun(self, pattern?: string, options?: { count?: integer, type?: string }): fun(): string?  Iterates over the keys that match, as `for key in cache:scan "user:*" do`; a key may come twice

--- Servers that speak the protocol of Redis (Redis, Valkey). A script needs a `net` grant with the port: `scripts: {allow: {net:
--- ["cache.internal:6379 private"]}}`. Other calls run while a command waits; when its call ends, its reply is read and dropped.
---@class moonpool.lib.redis
redis = {}
--- Opens a cache: `redis://HOST:PORT/DATABASE`, or `rediss://…` with TLS, where the certificate must be for the host. Nothing is connected
--- until the first command. All scripts with the same options share `pool` connections in each worker (1 unless given, at most 8), on which
--- the commands of all calls are sent one after another without waiting. So commands that block or change the connection are refused, and
--- the error says what to use instead. `user` and `password` log in, as `password = try(secret "REDIS_PASSWORD")`. `timeout`: seconds until a command is given up, 1 unless given. A reply may have 16 MiB.
---@param options { [1]: string, user?: string, password?: string|userdata, pool?: integer, timeout?: number }
---@return moonpool.Redis? cache, string? why
function redis.open(options) end

--- Why a statement failed: a text for `tostring`, `..`, `try` and the results of tools. `reason` is "error" if the server has refused it;
--- "unavailable" if it was not sent, and never will be; "unknown" if it was sent and not answered: it may have run, or may run yet.
---@class moonpool.PostgresFailure
---@field why string
---@field reason "error"|"unavailable"|"unknown"
---@field state? string  The SQLSTATE, as "23505"

--- A connection with an open transaction. It ends with the function that got it.
---@class moonpool.PostgresTransaction
---@field query fun(self, sql: string, params?: any[]): table[]?, moonpool.PostgresFailure?
---@field row fun(self, sql: string, params?: any[]): table?, moonpool.PostgresFailure?
---@field exec fun(self, sql: string, params?: any[]): integer?, moonpool.PostgresFailure?
---@field each fun(self, sql: string, params?: any[], options?: { fetch?: integer }): fun(): table?  Another statement of the transaction waits for its end

--- A result, or nil and a failure. A row has its values by column name, and none for NULL. Nothing is sent twice.
---@class moonpool.Postgres
---@field query fun(self, sql: string, params?: any[]): table[]?, moonpool.PostgresFailure?  All rows, at most 10,000 and 16 MiB
---@field row fun(self, sql: string, params?: any[]): table?, moonpool.PostgresFailure?  The first row; nil if there is none
---@field exec fun(self, sql: string, params?: any[]): integer?, moonpool.PostgresFailure?  How many rows were changed
---@field transaction fun(self, f: fun(tx: moonpool.PostgresTransaction), options?: { isolation?: "read committed"|"repeatable read"|"serializable", retry?: integer }): any  Commits, and returns the result of `f`; rolls back if `f` fails or returns nil and why. `retry`: how often `f` runs again after a serialization failure or a deadlock
---@field pipeline fun(self, f: fun(p: moonpool.PostgresTransaction)): any[]?, moonpool.PostgresFailure?  Sends the statements that `f` names together, as one transaction: the list of their results
---@field each fun(self, sql: string, params?: any[], options?: { fetch?: integer }): fun(): table?  Iterates over rows, fetched 500 (`fetch`) at a time, as `for row in db:each "select …" do`

--- PostgreSQL servers, by libpq. A script needs a `net` grant with the port: `scripts: {allow: {net: ["db.internal:5432 private"]}}`; or
--- `write` for a Unix socket. Other calls run while a statement waits; when its call ends, it is cancelled, and its transaction undone.
---@class moonpool.lib.postgres
postgres = {}
--- Opens a database: `postgres://USER@HOST:PORT/DATABASE`. Nothing is connected until the first statement. All scripts with the same
--- options share `pool` connections in each worker (4 unless given, at most 32), which calls take turns with. With TLS, and a certificate
--- that must be for the host, unless that is this machine or `tls = "off"`. `timeout`: seconds until the server ends a statement, 30 unless
--- given. `prepare = false`: for poolers such as PgBouncer. `socket`: a Unix socket instead of the host. `password = try(secret "…")`.
---@param options string|{ [1]: string, user?: string, password?: string|userdata, pool?: integer, timeout?: number, prepare?: boolean, tls?: "on"|"off", socket?: string }
---@return moonpool.Postgres? db, string? why
function postgres.open(options) end

--- Marks a parameter that is `bytea`; a plain string is text.
---@param bytes string
---@return table
function postgres.bytes(bytes) end

--- Marks a parameter that is an array; a plain table becomes `jsonb`. json.null is NULL.
---@param list any[]
---@return table
function postgres.array(list) end

---@class moonpool.Job
---@field [1] string                    The description
---@field [2] fun(call: moonpool.Call, run: moonpool.Run): any, string?
---@field every number|string           The interval in seconds, 0.1 to 30 days; or a cron expression: "0 3 * * 1-5"
---@field zone? string                  The time zone of a cron expression, as in "Europe/Berlin"; default: UTC
---@field jitter? number                Seconds, at most 3600: each run begins after a random delay of up to this; `timeout` includes the delay
---@field timeout? number               Limit of one run in seconds; default: limits.call.time
---@field enabled? boolean
---@field where? "every"                With cluster: each gateway runs the job. Without it one of them does, at multiples of the interval since 1970

--- One run of a job.
---@class moonpool.Run
---@field fence integer                 Above that of each earlier run: what the run writes elsewhere can be refused there if a later run has written

---@class moonpool.Listen
---@field [1] moonpool.Redis|moonpool.Postgres   What to listen to: what redis.open or postgres.open returned
---@field [2] string                    The channel
---@field [3] fun(message?: string, channel?: string, call: moonpool.Call): any, string?  nil: messages may have been missed
---@field pattern? boolean              The channel is a pattern, as in "orders.*"
---@field timeout? number               Limit of one run in seconds; default: limits.call.time
---@field enabled? boolean

-- -- policies -----------------------------------------------------------------------------------------------------------------------

--- The call that a policy gets: the fields of moonpool.Call and the fields below. A policy may set only `args`.
---@class moonpool.Turn: moonpool.Call
---@field kind "tool"|"resource"|"prompt"
---@field name string            The name of the tool, resource or prompt
---@field args table             The arguments of the call; for a resource, the values of the variables in its URI
---@field uri? string            The URI that is read, if the call reads a resource
---@field upstream? string      The upstream whose tool, resource or prompt it is; nil for one of the scripts
---@field phase? "prepare"|"run" For a tool with `prepare`: the policy runs for both phases. "run", too, around the result of an upstream's task

--- The calls that a policy applies to: names of tools and prompts and URIs of resources, where `*` matches any characters. A policy that
--- names none of the three applies to all calls.
---@class moonpool.Around
---@field tools? string[]
---@field resources? string[]
---@field prompts? string[]
---@field order? number          Policies with a lower order run first, further out; 0 by default; equal orders by name

---@class moonpool.Policy: moonpool.Around
---@field [1] string|fun(call: moonpool.Turn, next: fun(call?: moonpool.Turn): any, any): any, any
---@field [2]? fun(call: moonpool.Turn, next: fun(call?: moonpool.Turn): any, any): any, any

--- A file of scripts/policy: one function around calls of tools, reads of resources and uses of prompts. `next(call)` runs the handler and
--- returns its result; `fail` refuses the call; the function's return value is the result of the call.
---@param spec moonpool.Policy
function policy(spec) end

---@alias moonpool.CountedBy "principal"|"tool"|"address"|"all"|fun(call: moonpool.Turn): string|number

---@class moonpool.Limit: moonpool.Around
---@field rate number            The number of calls allowed in `per` seconds
---@field per? number            Seconds; 1 by default
---@field burst? integer         The number of calls allowed at once after idle time; `rate` by default
---@field by? moonpool.CountedBy|moonpool.CountedBy[]  Calls with an equal value share one limit; "principal" by default, and the address for "anonymous"
---@field answer? "error"|"status"  The answer to a refused tool call: an error for the model (the default), or HTTP status 429
---@field away? "local"|"refuse"|"allow"  With cluster: what happens to calls while its server does not answer; cluster.when_redis_is_down.limits by default

--- A policy that limits the rate of calls over all workers, and over all gateways of a cluster, as a token bucket.
---@param spec moonpool.Limit
function limit(spec) end

---@class moonpool.Quota: moonpool.Around
---@field most integer           The number of calls allowed in one period
---@field per? "hour"|"day"|"month"  The period, in UTC; "day" by default
---@field by? moonpool.CountedBy|moonpool.CountedBy[]
---@field answer? "error"|"status"
---@field away? "local"|"refuse"|"allow"  As for limit; cluster.when_redis_is_down.quotas by default

--- A policy that limits the number of calls in an hour, a day or a month, of one gateway or all gateways of a cluster.
---@param spec moonpool.Quota
function quota(spec) end

--- A file of scripts/jobs: a function that runs at an interval or at given times, on one worker, never twice at once. With an interval
--- the first run is soon after the start. With cluster in moonpool.yaml one of its gateways runs it, each time at most once; a run that the
--- server does not confirm for 14 seconds is cancelled, and none begins while the server does not answer.
---@param spec moonpool.Job
---@return table
function job(spec) end

--- A file of scripts/jobs: a function that runs for each message of a channel, on one worker, one run after another, with the limits of a
--- job: `return listen { cache, "orders", function(message) … end }`. It runs with nil, too, at first and whenever messages may have been
--- missed: after the connection was lost, when more than 1,024 wait, after a reload.
---@param spec moonpool.Listen
---@return table
function listen(spec) end

--- JSON values by key, in memory, shared by all workers: for counters, caches and data that scripts share. Its size is limited by store.entries and
--- store.bytes of moonpool.yaml. With store.file the values survive a restart; a killed process may lose the changes of the last 10 ms, and those that a busy disk has not taken yet.
--- After an upgrade the newest process has the store, also for the calls that still run in an older one. If it does not answer within 50 ms, a function
--- returns nil and why: "unavailable", nothing was done, and nothing will be; or "unknown", it was asked for and not answered: it may have been done. Nothing is
--- asked for again: who counts or pays reads the value and decides. With cluster in moonpool.yaml the values are in a Redis server that several gateways share:
--- the same results within cluster.redis.timeout, values of at most 1 MiB, and an error while scripts load.
---@class moonpool.lib.store
store = {}
---@class moonpool.StoreOptions
---@field ttl? number                  Time to live in seconds
---@field sync? boolean                With cluster: a replica has the value, too, before the function returns; nil, "not replicated" if none has said so in 100 ms, but the value is set. Else it changes nothing
---@field lock? moonpool.Lock          For store.set, in the function of store.lock: nil, "lost" if the lock is not held any more
---@class moonpool.LockOptions
---@field ttl? number                  Seconds after which the lock of a process that died is free: 2 to 3600, 30 by default
---@field wait? number                 Seconds to wait for a lock that is taken: 0 to 3600, 0 by default
---@class moonpool.Lock
---@field key string
---@field fence integer                A number above those of all earlier locks
--- Sets the value of the key.
---@param key string
---@param value any                    Any value that json.encode accepts
---@param options? moonpool.StoreOptions
---@return true? done, string? why     "full", "unavailable" or "unknown"
function store.set(key, value, options) end
--- The value of the key.
---@param key string
---@return any value, string? why      nil if the key has no value; nil, "unavailable" if that is not known
function store.get(key) end
--- Sets the value if the key has none and returns true; else returns false.
---@param key string
---@param value any
---@param options? moonpool.StoreOptions
---@return boolean? done, string? why
function store.add(key, value, options) end
--- Sets the value and returns true if the key has the value `old`, or none if `old` is nil; else returns false: another call was faster. Values are
--- equal if their JSON is, with sorted names; 1 and 1.0 are two values. Without `ttl` the time to live stays.
---@param key string
---@param old any                      The value that store.get gave
---@param value any
---@param options? moonpool.StoreOptions
---@return boolean? done, string? why
function store.cas(key, old, value, options) end
--- Runs f(lock) while this call alone has the lock, among all workers and processes, and returns its results. Else returns nil and why: "locked" if
--- another call has it, also one of this call; "lost" if it could not be renewed in time. The lock is renewed while `f` runs, and given back when `f` or
--- the call ends; if it is lost, `f` is cancelled at its next wait. A process that dies keeps it until its ttl is over. What is outside, such as a
--- database, has to refuse a fence below the last one that it saw. Locks are no keys: store.list does not give them.
---@param key string
---@param options? moonpool.LockOptions
---@param f fun(lock: moonpool.Lock): any
---@return any ...
function store.lock(key, options, f) end
--- Adds `by` to the integer value of the key, which is 0 if the key has none. `ttl` applies only if the key is new.
---@param key string
---@param by? integer                  1
---@param options? moonpool.StoreOptions
---@return integer? sum, string? why
function store.incr(key, by, options) end
--- Removes the key and its value, if there is one.
---@param key string
---@return true? done, string? why
function store.delete(key) end
--- Returns the keys that begin with `prefix`, sorted; at most `most`, 1000 by default.
---@param prefix? string
---@param most? integer
---@return string[]? keys, string? why
function store.list(prefix, most) end

--- The same functions for values of this process alone: for caches that need not be shared. They never wait, and are never "unavailable". The values end
--- with the process: store.file does not save them, and at an upgrade the newer process begins without them. It has a room of its own.
---@type moonpool.lib.store
store.near = {}

--- Hash functions of at most 16 MiB. The result is in hexadecimal digits, or in bytes if `form` is "bytes".
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
--- The HMAC of `bytes` with this key, by this hash function (RFC 2104).
---@param kind "sha256" | "sha512" | "sha1" | "md5"
---@param key string
---@param bytes string
---@param form? "hex" | "bytes"
---@return string
function digest.hmac(kind, key, bytes, form) end
--- True if two strings are equal. Takes constant time, so an attacker cannot measure where they differ.
---@param a string
---@param b string
---@return boolean
function digest.equal(a, b) end

---@class moonpool.lib.base64
base64 = {}
--- Encodes with the standard alphabet of Base64, with padding.
---@param bytes string
---@return string
function base64.encode(bytes) end
--- Decodes text of the standard alphabet, with padding.
---@param text string
---@return string? bytes, string? why
function base64.decode(text) end
--- Encodes with the URL-safe alphabet of Base64, without padding.
---@param bytes string
---@return string
function base64.url_encode(bytes) end
--- Decodes text of the URL-safe alphabet, with or without padding.
---@param text string
---@return string? bytes, string? why
function base64.url_decode(text) end

--- `uuid()` is random (version 4); `uuid.v7()` sorts by the time when it was made.
---@class moonpool.Uuid
---@field v4 fun(): string
---@field v7 fun(): string
---@overload fun(): string
uuid = {}

---@class moonpool.lib.time
time = {}
--- The time of the system's clock.
---@return number                      Seconds since 1970, with a fraction
function time.now() end
--- A time to measure with: the difference of two results is the time between them.
---@return number                      Seconds of the monotonic clock, which is never set
function time.monotonic() end
--- RFC 3339 in UTC, such as "2026-07-28T12:00:00Z".
---@param seconds? number              Since 1970; default: now
---@return string
function time.format(seconds) end
--- Reads a time of RFC 3339, such as "2026-07-28T12:00:00Z" or "2026-07-28T14:00:00+02:00".
---@param text string
---@return number? seconds, string? why
function time.parse(text) end

---@class moonpool.Uri
---@field scheme? string
---@field userinfo? string
---@field host? string
---@field port? integer
---@field path? string
---@field query? string | table        uri.build also accepts a table
---@field fragment? string

---@class moonpool.lib.uri
uri = {}
--- The parts of a URI; parts that it does not have are nil.
---@param text string
---@return moonpool.Uri? parts, string? why
function uri.parse(text) end
--- The URI that has these parts.
---@param parts moonpool.Uri
---@return string
function uri.build(parts) end
--- Percent-encodes a text so that it can stand in any part of a URI; "/" and "&" are encoded, too.
---@param text string | number
---@return string
function uri.encode(text) end
--- Decodes what uri.encode has encoded.
---@param text string
---@return string? decoded, string? why
function uri.decode(text) end
--- Encodes a table as a query string, "a=1&b=x%20y"; decodes a query string to a table.
---@param fields table | string
---@return string | table | nil query, string? why
function uri.query(fields) end
--- Resolves the relative URI `reference` against `base`.
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

--- Verifies tokens of an issuer (JWT, RFC 7519): signature, issuer, audience, times. Keys and URLs in a token's header are ignored.
---@class moonpool.lib.jwt
jwt = {}

---@class moonpool.VerifierOptions
---@field issuer string | string[] | false       The accepted values of `iss`; false: any issuer whose key is known
---@field audience string | string[] | false     The accepted values of `aud`; false: any audience
---@field jwks? string | table                    The URL of the issuer's JWK Set, or the set; default without any key: from the issuer's metadata
---@field key? string                             A public key, or a certificate, in PEM
---@field keys? table<string | integer, string>   Several keys: a table by `kid`, or a list
---@field key_file? string                        A file with PEM or a JWK Set, read again after a change; the script needs a `read` grant for it
---@field algorithms? string[]                    The accepted algorithms. Default: RS256 to 512, PS256 to 512, ES256 to 512, EdDSA, Ed25519
---@field leeway? number                          Allowed difference between the clocks, in seconds (default 60)
---@field required? string[]                      Claims that a token must have, in addition to `exp`
---@field refetch? number                         The least time between two fetches caused by unknown keys, in seconds (default 30)
---@field refresh? number                         The time after which keys are fetched again, in seconds (default 600)
---@field max_age? number                         The time for which keys stay in use while fetching fails, in seconds (default 86400)
---@field cache? integer                          The number of verified tokens that are cached, by SHA-256 (default 4096)
---@field plain_http? boolean                     true: keys may be fetched over plain http, where an attacker on the network can replace them

---@class moonpool.Verifier
local Verifier = {}
--- Verifies a token. Accepts any value and never raises. The kind "unavailable" means that the keys cannot be fetched now, so the token
--- could not be judged.
---@param token any
---@return table? claims, string? why, "unavailable"? kind
function Verifier:verify(token) end

--- Makes a verifier of tokens (JWT). Make it once, where the script loads: it caches keys and verified tokens.
---@param options moonpool.VerifierOptions
---@return moonpool.Verifier
function jwt.verifier(options) end

--- The HTTP request that is to be authenticated. Auth scripts may use it until they return.
---@class moonpool.Request
---@field method string                 "POST"
---@field path string                   "/mcp", without the query
---@field headers table<string, string> By name, in any case; several values of one header are joined by ", ". It cannot be iterated
---@field bearer? string                The token of `Authorization: Bearer …`, if it is well-formed
---@field address string                The client's address: "127.0.0.1", "unix"; what a proxy of `trusted_proxies` says, if one is in front
---@field peer string                   The address of the connection, which may be a proxy's: "127.0.0.1", "unix"
---@field tls? moonpool.RequestTls      The client's certificate, if it sent one

---@class moonpool.RequestTls
---@field subject string                "CN=ci,O=Example"
---@field issuer string
---@field serial string
---@field fingerprint string            SHA-256, in hexadecimal digits
---@field sans string[]                 "DNS:ci.example.com"
---@field expires integer                Seconds since 1970. Only the handshake checks it; the connection may last longer

--- The identity that an auth script gives a request.
---@class moonpool.WhoAsks
---@field id string
---@field scopes? string[]
---@field claims? table                 Data for tools and policies: any values that can be encoded as JSON
---@field issuer? string                Sessions and tasks are bound to `issuer`, `subject` and `client` together; without them, to the id
---@field subject? string
---@field client? string
---@field expires? number               Seconds since 1970. At this time the principal's event streams end

---@class moonpool.AuthSpec
---@field [1] fun(request: moonpool.Request): moonpool.WhoAsks?, string?, number?   Returns the identity; or nil, why, and seconds to retry after
---@field issuer? string                The URL of the authorization server, which clients learn from the metadata
---@field askable? string[]             Scopes that clients may request from the issuer when a tool needs them; default: any
---@field realm? string
---@field implies? table<string, string[]>        For a scope, the other scopes that it includes
---@field scopes_supported? string[]

---@class moonpool.Auth

--- Makes the value that a script in auth/ returns. The scripts run in order; the first one that returns an identity authenticates the
--- request. If none does, the client gets 401.
---@class moonpool.lib.auth
---@overload fun(spec: moonpool.AuthSpec): moonpool.Auth
auth = {}

--- Options of all functions of `auth`.
---@class moonpool.AuthOptions
---@field realm? string
---@field implies? table<string, string[]>        For a scope, the other scopes that it includes
---@field scopes_supported? string[]
---@field askable? string[]                       Scopes that clients may request when a tool needs them; default: any

---@class moonpool.AuthKeysOptions: moonpool.AuthOptions
---@field keys? table<string, { sha256: string, scopes?: string[], expires?: string }>   The keys, by name
---@field file? string                            A file with the lines that `moonpool key new` prints; the script needs a `read` grant for it
---@field store? string                           A prefix of keys in the store: the entry of an API key is at this prefix and its SHA-256
---@field header? string                          The header with the key, default "x-api-key"; `Authorization: Bearer` is accepted, too
---@field prefix? string                          The prefix of the principals' ids (default "key:")
--- Authenticates clients by API keys. Only the SHA-256 of each key is stored.
---@param options moonpool.AuthKeysOptions
---@return moonpool.Auth
function auth.keys(options) end

---@class moonpool.AuthBearerOptions: moonpool.AuthOptions
---@field secret string | moonpool.Secret         16 characters or more
---@field id? string                              The principal's id, default "bearer"
---@field scopes? string[]
--- Authenticates all clients that send one shared secret as bearer token, as one principal.
---@param options moonpool.AuthBearerOptions
---@return moonpool.Auth
function auth.bearer(options) end

---@class moonpool.AuthJwtOptions: moonpool.VerifierOptions, moonpool.AuthOptions
---@field [1]? fun(claims: table): table?, string?   Makes the identity from the claims; default: from `sub`, `scope` and `client_id`
---@field audience? string | string[] | false     Default: the endpoints below `public_url`
--- Authenticates clients by JWT access tokens that an issuer made for this server.
---@param options moonpool.AuthJwtOptions
---@return moonpool.Auth
function auth.jwt(options) end

---@class moonpool.AuthIntrospectionOptions: moonpool.AuthOptions
---@field [1]? fun(claims: table): table?, string?
---@field url string                              The introspection endpoint of the issuer (RFC 7662)
---@field client_id string
---@field client_secret string | moonpool.Secret
---@field audience? string | string[] | false     Default: the endpoints below `public_url`
---@field issuer? string | string[]               The accepted values of `iss` in its answers
---@field cache? number                           Seconds for which an accepted token is cached (default 60)
---@field negative? number                        Seconds for which a refused token is cached (default 10)
---@field plain_http? boolean
--- Authenticates clients by tokens that the issuer's introspection endpoint confirms.
---@param options moonpool.AuthIntrospectionOptions
---@return moonpool.Auth
function auth.introspection(options) end

---@class moonpool.AuthTlsClient
---@field id string
---@field scopes? string[]
---@field subject? string                         The certificate's subject, as in "CN=ci,O=Example"
---@field issuer? string                          The certificate's issuer, if client_ca has several, as in "CN=Our CA"
---@field san? string                             A subject alternative name, as in "DNS:ci.example.com"
---@field fingerprint? string                     SHA-256 of the certificate, in hexadecimal digits
---@class moonpool.AuthTlsOptions: moonpool.AuthOptions
---@field clients moonpool.AuthTlsClient[]
--- Authenticates clients by their TLS certificates: those that match an entry of `clients`.
---@param options moonpool.AuthTlsOptions
---@return moonpool.Auth
function auth.tls(options) end

---@class moonpool.AuthProxyOptions: moonpool.AuthOptions
---@field from string[]                           Addresses and networks of trusted proxies, as in "10.1.2.0/24"; "unix"
---@field header? string                          The header with the user's name, default "x-forwarded-user"
---@field scopes_header? string                   The header with the user's scopes, separated by spaces or commas
---@field scopes? string[]                        The scopes of all users
--- Authenticates the user that a trusted proxy names in a header.
---@param options moonpool.AuthProxyOptions
---@return moonpool.Auth
function auth.proxy(options) end

--- Regular expressions with the syntax of JavaScript, in Unicode mode. A match that exceeds its limits returns nil, "limit":
--- 50 ms of the processor, a text of 4 MiB, or of less for a class with more than eight properties or characters beyond ASCII.
---@class moonpool.lib.regex
regex = {}
--- Compiles a regular expression. Make it once, where the script loads.
---@param expression string
---@param flags? string                "i" ignores case, "m" lets ^ and $ match at line ends, "s" lets '.' match line ends
---@return moonpool.Regex? regex, string? why
function regex.new(expression, flags) end

--- Files. A script needs `read` or `write` grants for its paths: `scripts: {allow: {read: ["data/"], write: ["data/out/"]}}`. Relative
--- paths begin at the folder of moonpool.yaml. Symbolic links cannot lead out of a granted folder. Other calls run while a function
--- waits. On failure the functions return nil and the reason.
---@class moonpool.lib.fs
fs = {}
--- Reads a whole file of at most 16 MiB.
---@param path string
---@return string? text, string? why
function fs.read(path) end
--- Replaces the file atomically: a concurrent reader sees either the old or the new contents. `append` adds to its end.
---@param path string
---@param text string
---@param options? { append?: boolean }
---@return true? done, string? why
function fs.write(path, text, options) end
--- Returns the names in a folder, sorted; the names of folders end in "/".
---@param path string
---@return string[]? names, string? why
function fs.list(path) end

---@class moonpool.FileInfo
---@field type "file"|"folder"|"other"
---@field size integer
---@field modified number       Seconds since 1970

--- The type, size and time of a file or folder.
---@param path string
---@return moonpool.FileInfo? info, string? why
function fs.stat(path) end
--- True if there is a file or folder with this path.
---@param path string
---@return boolean? there, string? why
function fs.exists(path) end
--- Removes a file or an empty folder.
---@param path string
---@return true? done, string? why
function fs.remove(path) end
--- Makes a folder and its missing parents. Succeeds if the folder exists.
---@param path string
---@return true? done, string? why
function fs.mkdir(path) end

---@class moonpool.ExecOptions
---@field stdin? string|moonpool.Secret
---@field timeout? number       Limit in seconds; default: limits.exec.time
---@field env? table<string, string|number|moonpool.Secret>  Environment variables. Each needs an `env` grant, except LANG, LC_*, TZ, TERM, NO_COLOR
---@field cwd? string           The working folder, which needs a `read` grant; default: the folder of moonpool.yaml
---@field max? integer          Limit of stdout and of stderr in bytes each; default and most: 4 MiB

---@class moonpool.ExecResult
---@field status? integer       The exit status; nil if a signal ended the program
---@field signal? integer      The signal that ended the program
---@field stdout string
---@field stderr string

--- Runs a program with arguments, without a shell. The program needs a `run` grant: `scripts: {allow: {run: ["git", "/usr/bin/jq"]}}`.
--- The end of the call kills the program and its child processes. Returns nil and the reason if the program could not be started or
--- exceeded a limit.
---@param argv (string|number|moonpool.Secret)[]
---@param options? moonpool.ExecOptions
---@return moonpool.ExecResult? result, string? why
function exec(argv, options) end

--- Reads an environment variable, which needs an `env` grant: `scripts: {allow: {env: ["ORDERS_URL", "APP_*"]}}`. If the variable is not
--- set, returns `default`, or nil and the reason.
---@param name string
---@param default? string
---@return string? value, string? why
function env(name, default) end

--- A string that prints as ***. The headers of http and the arguments, `env` and `stdin` of exec use its real contents. A secret that is
--- joined with `..` makes a secret.
---@class moonpool.Secret
---@operator concat(string|moonpool.Secret): moonpool.Secret

--- Reads an environment variable as a secret. The variable needs an `env` grant.
---@param name string
---@return moonpool.Secret? secret, string? why
function secret(name) end

---@class moonpool.lib.json
json = {}
json.null = nil ---@type userdata      The value that JSON null decodes to
json.array_mt = {}                     -- the metatable of arrays: an empty table with this metatable encodes as []
json.object_mt = {}                    -- the metatable of objects: any table with this metatable encodes as an object
json.empty_array = {}
--- Encodes a value as JSON. Raises an error for a value that JSON does not have, such as a function.
---@param value any
---@return string
function json.encode(value) end
---@class moonpool.DecodeOptions
---@field nulls? boolean   false: object members that are null are absent, and a text that is null decodes to nil; in lists null stays json.null

--- Decodes a JSON text.
---@param text string
---@param options? moonpool.DecodeOptions
---@return any value, string? why
function json.decode(text, options) end
--- Marks a table as an array: an empty one encodes as []. Returns the table.
---@generic T: table
---@param list T
---@return T
function json.array(list) end
--- Marks a table as an object: an empty one encodes as {}. Returns the table.
---@generic T: table
---@param fields T
---@return T
function json.object(fields) end

seconds = 1
minutes = 60
hours = 3600
