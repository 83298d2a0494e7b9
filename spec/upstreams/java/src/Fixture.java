import io.modelcontextprotocol.json.McpJsonDefaults;
import io.modelcontextprotocol.json.McpJsonMapper;
import io.modelcontextprotocol.server.McpServer;
import io.modelcontextprotocol.server.McpServerFeatures;
import io.modelcontextprotocol.server.McpSyncServer;
import io.modelcontextprotocol.server.McpSyncServerExchange;
import io.modelcontextprotocol.server.transport.HttpServletSseServerTransportProvider;
import io.modelcontextprotocol.server.transport.HttpServletStreamableServerTransportProvider;
import io.modelcontextprotocol.server.transport.StdioServerTransportProvider;
import io.modelcontextprotocol.spec.McpSchema;
import jakarta.servlet.http.HttpServlet;
import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/**
 * A server made with the official Java SDK: fixture stdio, or sse or http, at the port of the variable PORT; and a client: Visitor.java.
 *
 * <p>What its tools do stands in spec/helpers/sdks.lua.
 */
public class Fixture {
    static final McpJsonMapper JSON = McpJsonDefaults.getMapper();
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static McpSyncServer server;

    /** What a tool does. */
    interface Run {
        Object run(McpSyncServerExchange client, McpSchema.CallToolRequest request) throws Exception;
    }

    /** A message of the protocol, from JSON with ' for ". */
    static <T> T of(Class<T> type, String text) {
        try {
            return JSON.readValue(text.replace('\'', '"'), type);
        } catch (IOException error) {
            throw new IllegalArgumentException(text, error);
        }
    }

    static String texts(Object message) throws IOException {
        return JSON.writeValueAsString(message);
    }

    private static McpSchema.CallToolResult result(Object value) {
        if (value instanceof McpSchema.CallToolResult done) {
            return done;
        }
        return McpSchema.CallToolResult.builder().addTextContent(String.valueOf(value)).build();
    }

    private static McpServerFeatures.SyncToolSpecification tool(String name, String description, String properties, Run run) {
        String text = "{'name':'%s','description':'%s','inputSchema':{'type':'object','properties':%s}}";
        return new McpServerFeatures.SyncToolSpecification(of(McpSchema.Tool.class, text.formatted(name, description, properties)), (client, request) -> {
            try {
                return result(run.run(client, request));
            } catch (Exception error) {
                return McpSchema.CallToolResult.builder().addTextContent(String.valueOf(error.getMessage())).isError(true).build();
            }
        });
    }

    private static void note(McpSyncServerExchange client, McpSchema.CallToolRequest request, double step, double total) {
        Object token = request.meta() == null ? null : request.meta().get("progressToken");
        if (token != null) {
            client.progressNotification(new McpSchema.ProgressNotification(token, step, total, null));
        }
    }

    private static Object say(McpSyncServerExchange client, McpSchema.CallToolRequest request) {
        String text = "{'level':'info','data':'%s'}".formatted(request.arguments().get("text"));
        client.loggingNotification(of(McpSchema.LoggingMessageNotification.class, text));
        return "said";
    }

    private static Object ask(McpSyncServerExchange client, McpSchema.CallToolRequest request) {
        Map<String, Object> schema = Map.of("type", "object", "properties", Map.of("name", Map.of("type", "string")), "required", List.of("name"));
        McpSchema.ElicitResult answer = client.createElicitation(new McpSchema.ElicitFormRequest("Who are you?", schema, null));
        String action = answer.action().name().toLowerCase();
        return action.equals("accept") ? "Hello, " + answer.content().get("name") : action;
    }

    private static Object sample(McpSyncServerExchange client, McpSchema.CallToolRequest request) {
        String text = "{'messages':[{'role':'user','content':{'type':'text','text':'%s'}}],'maxTokens':10}";
        McpSchema.CreateMessageRequest question = of(McpSchema.CreateMessageRequest.class, text.formatted(request.arguments().get("text")));
        return ((McpSchema.TextContent) client.createMessage(question).content()).text();
    }

    private static Object grow(McpSyncServerExchange client, McpSchema.CallToolRequest request) {
        server.addTool(tool("grown", "Is new.", "{}", (who, what) -> "grown"));
        return "grown";
    }

    private static Object touch(McpSyncServerExchange client, McpSchema.CallToolRequest request) {
        server.notifyResourcesUpdated(of(McpSchema.ResourcesUpdatedNotification.class, "{'uri':'fixture://text'}"));
        return "touched";
    }

    private static List<McpServerFeatures.SyncToolSpecification> tools() {
        String text = "{'text':{'type':'string'}}";
        return List.of(
            tool("echo", "Echoes.", text, (client, request) -> request.arguments().getOrDefault("text", "done")),
            tool("counter", "Counts.", "{}", (client, request) -> COUNT.incrementAndGet()),
            tool("add", "Adds, and says the sum as structured content.", "{'a':{'type':'integer'},'b':{'type':'integer'}}", (client, request) -> {
                int sum = ((Number) request.arguments().get("a")).intValue() + ((Number) request.arguments().get("b")).intValue();
                return McpSchema.CallToolResult.builder().addTextContent(String.valueOf(sum)).structuredContent(Map.of("sum", sum)).build();
            }),
            tool("fail", "Fails.", "{}", (client, request) -> {
                throw new IllegalStateException("no luck");
            }),
            tool("steps", "Reports progress.", "{}", (client, request) -> {
                for (int step = 1; step <= 3; step++) {
                    note(client, request, step, 3);
                }
                return "done";
            }),
            tool("large", "Reports progress, and returns a text of so many bytes.", "{'size':{'type':'integer'}}", (client, request) -> {
                note(client, request, 1, 1);
                return "x".repeat(((Number) request.arguments().get("size")).intValue());
            }),
            tool("say", "Sends a log message.", text, Fixture::say),
            tool("ask", "Asks for a name in the middle of the call.", "{}", Fixture::ask),
            tool("sample", "Asks the model of the client.", text, Fixture::sample),
            tool("roots", "Says the roots of the client.", "{}",
                (client, request) -> String.join(" ", client.listRoots().roots().stream().map(McpSchema.Root::uri).toList())),
            tool("ping", "Pings the client.", "{}", (client, request) -> {
                client.ping();
                return "pong";
            }),
            tool("grow", "Adds a tool, and says so.", "{}", Fixture::grow),
            tool("touch", "Says that the resource was updated.", "{}", Fixture::touch));
    }

    private static McpSchema.ReadResourceResult read(String uri) {
        String text = uri.replace("fixture://text", "hello").replace("fixture://item/", "item ");
        return of(McpSchema.ReadResourceResult.class, "{'contents':[{'uri':'%s','text':'%s'}]}".formatted(uri, text));
    }

    private static McpSyncServer build(McpServer.SyncSpecification<?> made) {
        String capabilities = "{'tools':{'listChanged':true},'prompts':{},'resources':{'subscribe':true},'completions':{},'logging':{}}";
        McpSchema.Prompt prompt = of(McpSchema.Prompt.class, "{'name':'hello','arguments':[{'name':'who'}]}");
        return made.serverInfo("java", "1").capabilities(of(McpSchema.ServerCapabilities.class, capabilities)).tools(tools())
            .prompts(new McpServerFeatures.SyncPromptSpecification(prompt, (client, request) -> of(McpSchema.GetPromptResult.class,
                "{'messages':[{'role':'user','content':{'type':'text','text':'Hello, %s'}}]}".formatted(request.arguments().get("who")))))
            .resources(new McpServerFeatures.SyncResourceSpecification(of(McpSchema.Resource.class, "{'uri':'fixture://text','name':'text'}"),
                (client, request) -> read(request.uri())))
            .resourceTemplates(new McpServerFeatures.SyncResourceTemplateSpecification(
                of(McpSchema.ResourceTemplate.class, "{'uriTemplate':'fixture://item/{id}','name':'item'}"), (client, request) -> read(request.uri())))
            .completions(new McpServerFeatures.SyncCompletionSpecification(new McpSchema.PromptReference("hello"), (client, request) -> {
                List<String> words = List.of("world", "word").stream().filter(word -> word.startsWith(request.argument().value())).toList();
                return new McpSchema.CompleteResult(new McpSchema.CompleteResult.CompleteCompletion(words, words.size(), false));
            }))
            .build();
    }

    private static void serve(HttpServlet servlet) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir") + "/fixture-" + ProcessHandle.current().pid());
        tomcat.setHostname("127.0.0.1");
        tomcat.setPort(Integer.parseInt(System.getenv("PORT")));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        Context context = tomcat.addContext("", new File(".").getAbsolutePath());
        Tomcat.addServlet(context, "mcp", servlet).setAsyncSupported(true);
        context.addServletMappingDecoded("/*", "mcp");
        tomcat.start();
        tomcat.getServer().await();
    }

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "client" -> Visitor.main(List.of(words).subList(1, words.length));
            case "stdio" -> server = build(McpServer.sync(new StdioServerTransportProvider(JSON)));
            case "sse" -> {
                var provider = HttpServletSseServerTransportProvider.builder().jsonMapper(JSON).sseEndpoint("/sse").messageEndpoint("/message").build();
                server = build(McpServer.sync(provider));
                serve(provider);
            }
            default -> {
                var provider = HttpServletStreamableServerTransportProvider.builder().jsonMapper(JSON).mcpEndpoint("/mcp").build();
                server = build(McpServer.sync(provider));
                serve(provider);
            }
        }
    }
}
