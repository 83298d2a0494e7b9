//! A client made with the official Rust SDK:  fixture client PREFIX stdio COMMAND…, or PREFIX http URL.
//!
//! It tries what a server of spec/upstreams has, whose tools and prompts have PREFIX before their names, and prints a line for each check: `ok NAME`,
//! or `not NAME: WHY`. With MODE=legacy in the environment it begins with `initialize`. CHECKS has the names of those to try, with commas between them,
//! SECONDS the time that each may take.
use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rmcp::model::*;
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestContext, RoleClient, RunningService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::{Value, from_value, json};

#[derive(Default)]
struct Heard {
    notes: Vec<String>,
    steps: Vec<f64>,
    answer: String,
}

#[derive(Clone, Default)]
struct Visitor(Arc<Mutex<Heard>>);

impl ClientHandler for Visitor {
    fn get_info(&self) -> ClientConfig {
        let capabilities = json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": { "listChanged": true } });
        ClientConfig::new(from_value(capabilities).unwrap(), Implementation::new("rust", "1"))
    }

    async fn create_elicitation(&self, _: ElicitRequestParams, _: RequestContext<RoleClient>) -> Result<ElicitResult, ErrorData> {
        let answer = self.0.lock().unwrap().answer.clone();
        let content = if answer == "accept" { json!({ "name": "you" }) } else { Value::Null };
        let mut result = json!({ "action": answer });
        if !content.is_null() {
            result["content"] = content;
        }
        Ok(from_value(result).unwrap())
    }

    async fn create_message(&self, params: CreateMessageRequestParams, _: RequestContext<RoleClient>) -> Result<CreateMessageResult, ErrorData> {
        let message = serde_json::to_value(&params.messages[0]).unwrap();
        let block = if message["content"].is_array() { &message["content"][0] } else { &message["content"] };
        let text = format!("from {}", block["text"].as_str().unwrap_or("?"));
        Ok(from_value(json!({ "role": "assistant", "model": "m", "content": { "type": "text", "text": text } })).unwrap())
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///home")]))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.lock().unwrap().steps.push(params.progress);
    }

    async fn on_logging_message(&self, params: LoggingMessageNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(format!("log {}", params.data.as_str().unwrap_or("?")));
    }

    async fn on_resource_updated(&self, params: ResourceUpdatedNotificationParam, _: NotificationContext<RoleClient>) {
        self.hear(format!("updated {}", params.uri));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.hear("tools".into());
    }
}

impl Visitor {
    fn hear(&self, what: String) {
        self.0.lock().unwrap().notes.push(what);
    }

    fn has_heard(&self, what: &str) -> bool {
        self.0.lock().unwrap().notes.iter().any(|note| note == what)
    }
}

type Verdict = Result<(), String>;

fn equal<T: PartialEq + std::fmt::Debug>(wanted: T, got: T) -> Verdict {
    if wanted == got { Ok(()) } else { Err(format!("wanted {:.80}, got {:.200}", format!("{wanted:?}"), format!("{got:?}"))) }
}

fn why(error: impl ToString) -> String {
    error.to_string()
}

struct Visit {
    prefix: String,
    client: RunningService<RoleClient, Visitor>,
    patience: Duration,
}

impl Visit {
    fn heard(&self) -> &Visitor {
        self.client.service()
    }

    fn is_new(&self) -> bool {
        self.client.peer_info().is_some_and(|info| serde_json::to_value(&*info).unwrap().to_string().contains("2026-07-28"))
    }

    fn request(&self, name: &str, given: Value) -> CallToolRequestParams {
        from_value(json!({ "name": format!("{}{name}", self.prefix), "arguments": given })).unwrap()
    }

    async fn result(&self, name: &str, given: Value) -> Result<CallToolResult, String> {
        self.client.call_tool(self.request(name, given)).await.map_err(why)
    }

    async fn call(&self, name: &str, given: Value) -> Result<String, String> {
        let result = self.result(name, given).await?;
        Ok(result.content.first().and_then(|block| block.as_text()).map(|text| text.text.clone()).unwrap_or_default())
    }

    async fn says(&self, wanted: &str, name: &str, given: Value) -> Verdict {
        equal(wanted.to_string(), self.call(name, given).await?)
    }

    async fn lists(&self, name: &str) -> bool {
        let all = self.client.list_all_tools().await.unwrap_or_default();
        all.iter().any(|tool| tool.name == format!("{}{name}", self.prefix))
    }

    /// Waits until this was heard.
    async fn hears(&self, what: &str) -> Verdict {
        let begin = Instant::now();
        while begin.elapsed() < self.patience / 2 {
            if self.heard().has_heard(what) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("waited in vain for {what}"))
    }

    async fn progress(&self) -> Verdict {
        self.heard().0.lock().unwrap().steps.clear();
        self.says("done", "steps", json!({ "n": 1 })).await?;
        let begin = Instant::now();
        while begin.elapsed() < self.patience / 2 && self.heard().0.lock().unwrap().steps.len() < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        equal(vec![1.0, 2.0, 3.0], self.heard().0.lock().unwrap().steps.clone())
    }

    async fn log(&self) -> Verdict {
        if !self.is_new() {
            self.client.set_level(from_value(json!({ "level": "info" })).unwrap()).await.map_err(why)?;
        }
        self.says("said", "say", json!({ "text": "a word" })).await?;
        self.hears("log a word").await
    }

    fn answer(&self, answer: &str) {
        self.heard().0.lock().unwrap().answer = answer.into();
    }

    async fn elicitation(&self) -> Verdict {
        self.answer("accept");
        self.says("Hello, you", "ask", json!({})).await?;
        self.answer("decline");
        self.says("decline", "ask", json!({})).await
    }

    async fn cancellation(&self) -> Verdict {
        let before = self.call("cancelled", json!({})).await?;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(self.request("slow", json!({}))));
        let mut options = PeerRequestOptions::no_options();
        options.timeout = Some(Duration::from_millis(300));
        let handle = self.client.send_cancellable_request(request, options).await.map_err(why)?;
        let _ = handle.await_response().await;
        let begin = Instant::now();
        while begin.elapsed() < self.patience / 2 {
            if self.call("cancelled", json!({})).await? != before {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("waited in vain for the end of the call".into())
    }

    async fn reads(&self, wanted: &str, uri: &str) -> Verdict {
        let result = self.client.read_resource(from_value(json!({ "uri": uri })).unwrap()).await.map_err(why)?;
        let result = serde_json::to_value(result).unwrap();
        equal(wanted.to_string(), result["contents"][0]["text"].as_str().unwrap_or("?").to_string())
    }

    async fn resource(&self) -> Verdict {
        self.reads("hello", "fixture://text").await?;
        self.reads("item 7", "fixture://item/7").await?;
        equal(1, self.client.list_all_resource_templates().await.map_err(why)?.len())
    }

    async fn prompt(&self) -> Verdict {
        let params = json!({ "name": format!("{}hello", self.prefix), "arguments": { "who": "you" } });
        let result = self.client.get_prompt(from_value::<GetPromptRequestParams>(params).unwrap()).await.map_err(why)?;
        let result = serde_json::to_value(result).unwrap();
        equal("Hello, you".to_string(), result["messages"][0]["content"]["text"].as_str().unwrap_or("?").to_string())
    }

    async fn completion(&self) -> Verdict {
        let reference = json!({ "type": "ref/prompt", "name": format!("{}hello", self.prefix) });
        let params = json!({ "ref": reference, "argument": { "name": "who", "value": "wor" } });
        let result = self.client.complete(from_value(params).unwrap()).await.map_err(why)?;
        equal(json!(["world", "word"]), serde_json::to_value(result).unwrap()["completion"]["values"].clone())
    }

    async fn subscription(&self) -> Verdict {
        let uri = json!({ "uri": "fixture://text" });
        if self.is_new() {
            let filter: SubscriptionFilter = from_value(json!({ "resourceSubscriptions": ["fixture://text"] })).unwrap();
            let mut stream = self.client.listen(filter).await.map_err(why)?;
            self.says("touched", "touch", json!({})).await?;
            return stream.next().await.map_err(why).and_then(|note| note.map(|_| ()).ok_or("the stream ended".into()));
        }
        self.client.subscribe(from_value(uri.clone()).unwrap()).await.map_err(why)?;
        self.says("touched", "touch", json!({})).await?;
        self.hears("updated fixture://text").await?;
        self.client.unsubscribe(from_value(uri).unwrap()).await.map_err(why)
    }

    async fn change(&self) -> Verdict {
        if self.is_new() {
            let filter: SubscriptionFilter = from_value(json!({ "toolsListChanged": true })).unwrap();
            let mut stream = self.client.listen(filter).await.map_err(why)?;
            self.says("grown", "grow", json!({})).await?;
            stream.next().await.map_err(why)?;
        } else {
            self.says("grown", "grow", json!({})).await?;
            self.hears("tools").await?;
        }
        let begin = Instant::now();
        while begin.elapsed() < self.patience / 2 {
            if self.lists("grown").await {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("waited in vain for the new tool".into())
    }

    async fn check(&self, name: &str) -> Verdict {
        match name {
            "list" => equal(true, self.lists("echo").await),
            "call" => self.says("hi", "echo", json!({ "text": "hi" })).await,
            "structured" => equal(Some(json!({ "sum": 3 })), self.result("add", json!({ "a": 1, "b": 2 })).await?.structured_content),
            "failure" => equal(Some(true), self.result("fail", json!({})).await?.is_error),
            "unknown" => equal(true, self.result("nothing", json!({})).await.map_or(true, |result| result.is_error == Some(true))),
            "progress" => self.progress().await,
            "large" => equal(2 << 20, self.call("large", json!({ "size": 2 << 20 })).await?.len()),
            "log" => self.log().await,
            "elicitation" => self.elicitation().await,
            "elicitation_first" => {
                self.answer("accept");
                self.says("Hello, you", "ask_first", json!({})).await
            }
            "sampling" => self.says("from me", "sample", json!({ "text": "me" })).await,
            "roots" => self.says("file:///home", "roots", json!({})).await,
            "ping" => self.says("pong", "ping", json!({})).await,
            "cancellation" => self.cancellation().await,
            "resource" => self.resource().await,
            "prompt" => self.prompt().await,
            "completion" => self.completion().await,
            "subscription" => self.subscription().await,
            "change" => self.change().await,
            _ => Err("no such check".into()),
        }
    }
}

const CHECKS: &[&str] = &[
    "list", "call", "structured", "failure", "unknown", "progress", "large", "log", "elicitation", "elicitation_first", "sampling", "roots", "ping",
    "cancellation", "resource", "prompt", "completion", "subscription", "change",
];

async fn connect(kind: &str, place: &[String]) -> Result<RunningService<RoleClient, Visitor>, String> {
    let mode = if env::var("MODE").is_ok_and(|mode| mode == "legacy") {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Auto { preferred_versions: vec![ProtocolVersion::V_2026_07_28], legacy_version: Some(ProtocolVersion::V_2025_11_25) }
    };
    if kind == "stdio" {
        let mut command = tokio::process::Command::new(&place[0]);
        command.args(&place[1..]);
        let transport = TokioChildProcess::new(command).map_err(why)?;
        return Visitor::default().serve_with_lifecycle(transport, mode).await.map_err(why);
    }
    let transport = StreamableHttpClientTransport::from_uri(place[0].as_str());
    Visitor::default().serve_with_lifecycle(transport, mode).await.map_err(why)
}

pub async fn run(prefix: &str, kind: &str, place: &[String]) {
    let seconds = env::var("SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    let only = env::var("CHECKS").unwrap_or_default();
    let client = match connect(kind, place).await {
        Ok(client) => client,
        Err(error) => return println!("not connect: {}", error.replace('\n', " ")),
    };
    let visit = Visit { prefix: prefix.into(), client, patience: Duration::from_secs(seconds) };
    for name in CHECKS {
        if !only.is_empty() && !only.split(',').any(|one| one == *name) {
            continue;
        }
        let verdict = tokio::time::timeout(visit.patience, visit.check(name)).await.unwrap_or(Err("no answer".into()));
        match verdict {
            Ok(()) => println!("ok {name}"),
            Err(error) => println!("not {name}: {:.300}", error.replace('\n', " ")),
        }
    }
    let _ = visit.client.cancel().await;
    println!("ok leave");
}
