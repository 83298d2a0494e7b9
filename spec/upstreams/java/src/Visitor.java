import io.modelcontextprotocol.client.McpClient;
import io.modelcontextprotocol.client.McpSyncClient;
import io.modelcontextprotocol.client.transport.HttpClientSseClientTransport;
import io.modelcontextprotocol.client.transport.HttpClientStreamableHttpTransport;
import io.modelcontextprotocol.client.transport.ServerParameters;
import io.modelcontextprotocol.client.transport.StdioClientTransport;
import io.modelcontextprotocol.spec.McpClientTransport;
import io.modelcontextprotocol.spec.McpSchema;
import java.net.URI;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * A client made with the official Java SDK: fixture client PREFIX stdio COMMAND…, or PREFIX sse or http URL.
 *
 * <p>It tries what a server of spec/upstreams has, whose tools and prompts have PREFIX before their names, and prints a line for each check: `ok NAME`,
 * or `not NAME: WHY`. CHECKS has the names of those to try, with commas between them, SECONDS the time that each may take.
 */
class Visitor {
    /** One check, which throws what is wrong. */
    interface Check {
        void run() throws Exception;
    }

    private static final Queue<String> HEARD = new ConcurrentLinkedQueue<>();
    private static final Queue<Double> STEPS = new ConcurrentLinkedQueue<>();
    private static volatile String answer = "accept";
    private static String prefix;
    private static McpSyncClient client;
    private static long seconds = 8;

    private static McpClientTransport transport(String kind, List<String> where) {
        if (kind.equals("stdio")) {
            ServerParameters command = ServerParameters.builder(where.get(0)).args(where.subList(1, where.size())).build();
            StdioClientTransport transport = new StdioClientTransport(command, Fixture.JSON);
            transport.setStdErrorHandler(line -> { });
            return transport;
        }
        URI url = URI.create(where.get(0));
        String origin = url.getScheme() + "://" + url.getAuthority();
        return kind.equals("sse") ? HttpClientSseClientTransport.builder(origin).sseEndpoint(url.getPath()).build()
            : HttpClientStreamableHttpTransport.builder(origin).endpoint(url.getPath()).build();
    }

    private static McpSyncClient connect(String kind, List<String> where) {
        McpSyncClient made = McpClient.sync(transport(kind, where))
            .requestTimeout(Duration.ofSeconds(seconds)).initializationTimeout(Duration.ofSeconds(20))
            .clientInfo(new McpSchema.Implementation("java", "1"))
            .capabilities(Fixture.of(McpSchema.ClientCapabilities.class, "{'roots':{'listChanged':true},'sampling':{},'elicitation':{}}"))
            .roots(new McpSchema.Root("file:///home", null))
            .elicitation(request -> Fixture.of(McpSchema.ElicitResult.class,
                answer.equals("accept") ? "{'action':'accept','content':{'name':'you'}}" : "{'action':'" + answer + "'}"))
            .sampling(request -> Fixture.of(McpSchema.CreateMessageResult.class,
                "{'role':'assistant','model':'m','content':{'type':'text','text':'from %s'}}".formatted(
                    ((McpSchema.TextContent) request.messages().get(0).content()).text())))
            .loggingConsumer(message -> HEARD.add("log " + message.data()))
            .progressConsumer(note -> STEPS.add(note.progress()))
            .toolsChangeConsumer(tools -> HEARD.add("tools"))
            .resourcesUpdateConsumer(contents -> HEARD.add("updated " + contents.get(0).uri()))
            .build();
        made.initialize();
        return made;
    }

    private static void fact(String what, BooleanSupplier test) throws Exception {
        for (long end = System.nanoTime() + seconds * 500_000_000L; System.nanoTime() < end; Thread.sleep(20)) {
            if (test.getAsBoolean()) {
                return;
            }
        }
        throw new IllegalStateException("waited in vain for " + what);
    }

    private static void equal(Object wanted, Object got) {
        if (!wanted.equals(got)) {
            throw new IllegalStateException("wanted %.80s, got %.200s".formatted(wanted, got));
        }
    }

    private static McpSchema.CallToolResult result(String name, Map<String, Object> given) {
        Map<String, Object> meta = name.equals("steps") || name.equals("large") ? Map.of("progressToken", name) : null;
        return client.callTool(new McpSchema.CallToolRequest(prefix + name, given, meta));
    }

    private static String call(String name, Map<String, Object> given) {
        return ((McpSchema.TextContent) result(name, given).content().get(0)).text();
    }

    private static boolean lists(String name) {
        return client.listTools().tools().stream().anyMatch(tool -> tool.name().equals(prefix + name));
    }

    private static String read(String uri) {
        return ((McpSchema.TextResourceContents) client.readResource(new McpSchema.ReadResourceRequest(uri)).contents().get(0)).text();
    }

    private static boolean refuses(String name) {
        try {
            return Boolean.TRUE.equals(result(name, Map.of()).isError());
        } catch (RuntimeException error) {
            return true;
        }
    }

    private static Map<String, Check> checks() {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("list", () -> equal(true, lists("echo")));
        checks.put("call", () -> equal("hi", call("echo", Map.of("text", "hi"))));
        checks.put("structured", () -> equal(Map.of("sum", 3), result("add", Map.of("a", 1, "b", 2)).structuredContent()));
        checks.put("failure", () -> equal(true, result("fail", Map.of()).isError()));
        checks.put("unknown", () -> equal(true, refuses("nothing")));
        checks.put("progress", () -> {
            STEPS.clear();
            equal("done", call("steps", Map.of("n", 1)));
            fact("three steps", () -> List.copyOf(STEPS).equals(List.of(1.0, 2.0, 3.0)));
        });
        checks.put("large", () -> equal(2 << 20, call("large", Map.of("size", 2 << 20)).length()));
        checks.put("log", () -> {
            client.setLoggingLevel(McpSchema.LoggingLevel.INFO);
            equal("said", call("say", Map.of("text", "a word")));
            fact("the log message", () -> HEARD.contains("log a word"));
        });
        checks.put("elicitation", () -> {
            answer = "accept";
            equal("Hello, you", call("ask", Map.of()));
            answer = "decline";
            equal("decline", call("ask", Map.of()));
        });
        checks.put("elicitation_first", () -> {
            answer = "accept";
            equal("Hello, you", call("ask_first", Map.of()));
        });
        checks.put("sampling", () -> equal("from me", call("sample", Map.of("text", "me"))));
        checks.put("roots", () -> equal("file:///home", call("roots", Map.of())));
        checks.put("ping", () -> {
            client.ping();
            equal("pong", call("ping", Map.of()));
        });
        checks.put("resource", () -> {
            equal("hello", read("fixture://text"));
            equal("item 7", read("fixture://item/7"));
            equal(1, client.listResourceTemplates().resourceTemplates().size());
        });
        checks.put("prompt", () -> {
            var prompt = client.getPrompt(new McpSchema.GetPromptRequest(prefix + "hello", Map.of("who", "you")));
            equal("Hello, you", ((McpSchema.TextContent) prompt.messages().get(0).content()).text());
        });
        checks.put("completion", () -> {
            var argument = new McpSchema.CompleteRequest.CompleteArgument("who", "wor");
            var found = client.completeCompletion(new McpSchema.CompleteRequest(new McpSchema.PromptReference(prefix + "hello"), argument));
            equal(List.of("world", "word"), found.completion().values());
        });
        checks.put("subscription", () -> {
            client.subscribeResource(new McpSchema.SubscribeRequest("fixture://text"));
            equal("touched", call("touch", Map.of()));
            fact("the update", () -> HEARD.contains("updated fixture://text"));
            client.unsubscribeResource(new McpSchema.UnsubscribeRequest("fixture://text"));
        });
        checks.put("change", () -> {
            call("grow", Map.of());
            fact("the notification", () -> HEARD.contains("tools"));
            fact("the new tool", () -> lists("grown"));
        });
        return checks;
    }

    private static void attempt(ExecutorService runner, String name, Check check) {
        var future = runner.submit(() -> {
            check.run();
            return null;
        });
        try {
            future.get(seconds, TimeUnit.SECONDS);
            System.out.println("ok " + name);
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            System.out.println("not %s: %.300s".formatted(name, String.valueOf(cause).replace('\n', ' ')));
            future.cancel(true);
        }
    }

    static void main(List<String> words) {
        prefix = words.get(0);
        seconds = Long.parseLong(System.getenv().getOrDefault("SECONDS", "8"));
        String only = System.getenv().getOrDefault("CHECKS", "");
        try {
            client = connect(words.get(1), words.subList(2, words.size()));
        } catch (RuntimeException error) {
            System.out.println("not connect: " + String.valueOf(error.getCause() == null ? error : error.getCause()).replace('\n', ' '));
            System.exit(0);
        }
        ExecutorService runner = Executors.newCachedThreadPool();
        checks().forEach((name, check) -> {
            if (only.isEmpty() || List.of(only.split(",")).contains(name)) {
                attempt(runner, name, check);
            }
        });
        client.closeGracefully();
        System.out.println("ok leave");
        System.exit(0);
    }
}
