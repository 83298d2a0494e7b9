//! A server and a client made with the official Rust SDK:  fixture stdio, or http at the port of the variable PORT; fixture client: client.rs.
//!
//! What its tools do stands in spec/helpers/sdks.lua.
#![allow(deprecated)] // what 2026-07-28 leaves behind is tried, too

mod client;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager};
use rmcp::{ErrorData, Peer, ServerHandler, ServiceExt};
use serde_json::{Value, from_value, json};
use tokio::sync::broadcast;

/// What all sessions of the process share.
struct Shared {
    count: AtomicUsize,
    ended: AtomicUsize,
    has_grown: AtomicBool,
    changes: broadcast::Sender<&'static str>,
}

#[derive(Clone)]
struct Fixture(Arc<Shared>);

fn said(text: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
}

fn failed(error: impl ToString) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn question() -> ElicitRequestParams {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    ElicitRequestParams::FormElicitationParams { meta: None, message: "Who are you?".into(), requested_schema: from_value(schema).unwrap() }
}

fn answered(action: &str, content: &Value) -> Result<CallToolResponse, ErrorData> {
    if action == "accept" { said(format!("Hello, {}", content["name"].as_str().unwrap_or("?"))) } else { said(action) }
}

/// Name, description and properties of the arguments.
fn tools() -> Vec<(&'static str, &'static str, Value)> {
    let text = json!({ "text": { "type": "string" } });
    vec![
        ("echo", "Echoes.", text.clone()),
        ("counter", "Counts.", json!({})),
        ("add", "Adds, and says the sum as structured content.", json!({ "a": { "type": "number" }, "b": { "type": "number" } })),
        ("fail", "Fails.", json!({})),
        ("steps", "Reports progress.", json!({})),
        ("large", "Reports progress, and returns a text of so many bytes.", json!({ "size": { "type": "number" } })),
        ("say", "Sends a log message.", text.clone()),
        ("ask", "Asks for a name in the middle of the call.", json!({})),
        ("ask_first", "Asks for a name before the call, as the SDK has it for 2026-07-28.", json!({})),
        ("sample", "Has the client's model answer.", text),
        ("roots", "Says the client's roots.", json!({})),
        ("ping", "Pings the client.", json!({})),
        ("slow", "Waits until it is cancelled.", json!({})),
        ("cancelled", "Says how many slow calls have ended.", json!({})),
        ("grow", "Adds a tool, and says so.", json!({})),
        ("touch", "Says that the resource was updated.", json!({})),
        ("grown", "Is new.", json!({})),
    ]
}

async fn note(peer: &Peer<RoleServer>, meta: &RequestMetaObject, progress: f64, total: f64) {
    if let Some(token) = meta.get_progress_token() {
        let params = json!({ "progressToken": token, "progress": progress, "total": total });
        let _ = peer.notify_progress(from_value(params).unwrap()).await;
    }
}

impl Fixture {
    async fn run(&self, name: &str, given: &Value, request: &CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let (peer, meta) = (&context.peer, &context.meta);
        match name {
            "echo" => said(given["text"].as_str().unwrap_or("done")),
            "counter" => said((self.0.count.fetch_add(1, Ordering::SeqCst) + 1).to_string()),
            "add" => Ok(CallToolResult::structured(json!({ "sum": given["a"].as_i64().unwrap_or(0) + given["b"].as_i64().unwrap_or(0) })).into()),
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("no luck")]).into()),
            "steps" => {
                for step in [1.0, 2.0, 3.0] {
                    note(peer, meta, step, 3.0).await;
                }
                said("done")
            }
            "large" => {
                note(peer, meta, 1.0, 1.0).await;
                said("x".repeat(given["size"].as_u64().unwrap_or(0) as usize))
            }
            "say" => {
                let params = json!({ "level": "info", "data": given["text"] });
                peer.notify_logging_message(from_value(params).unwrap()).await.map_err(failed)?;
                said("said")
            }
            "ask" => {
                let answer = serde_json::to_value(peer.create_elicitation(question()).await.map_err(failed)?).unwrap();
                answered(answer["action"].as_str().unwrap_or("?"), &answer["content"])
            }
            "ask_first" => match request.input_responses.as_ref().and_then(|all| all.get("name")) {
                Some(answer) => answered(answer["action"].as_str().unwrap_or("?"), &answer["content"]),
                None => {
                    let mut requests = InputRequests::new();
                    requests.insert("name".to_string(), InputRequest::Elicitation(ElicitRequest::new(question())));
                    Ok(InputRequiredResult::new(Some(requests), Some("asked".into())).into())
                }
            },
            "sample" => {
                let message = SamplingMessage::user_text(given["text"].as_str().unwrap_or(""));
                let answer = peer.create_message(CreateMessageRequestParams::new(vec![message], 10)).await.map_err(failed)?;
                let answer = serde_json::to_value(answer).unwrap();
                let block = if answer["content"].is_array() { &answer["content"][0] } else { &answer["content"] };
                said(block["text"].as_str().unwrap_or("?"))
            }
            "roots" => {
                let roots = peer.list_roots().await.map_err(failed)?.roots;
                said(roots.iter().map(|root| root.uri.as_str()).collect::<Vec<_>>().join(" "))
            }
            "ping" => {
                peer.send_request(ServerRequest::PingRequest(Default::default())).await.map_err(failed)?;
                said("pong")
            }
            "slow" => tokio::select! {
                _ = context.ct.cancelled() => { self.0.ended.fetch_add(1, Ordering::SeqCst); said("cancelled") }
                _ = tokio::time::sleep(Duration::from_secs(20)) => said("late"),
            },
            "cancelled" => said(self.0.ended.load(Ordering::SeqCst).to_string()),
            "grow" => {
                self.0.has_grown.store(true, Ordering::SeqCst);
                let _ = self.0.changes.send("tools");
                if context.protocol_version().is_some_and(|version| version < ProtocolVersion::V_2026_07_28) {
                    peer.notify_tool_list_changed().await.map_err(failed)?;
                }
                said("grown")
            }
            "touch" => {
                let _ = self.0.changes.send("resource");
                if context.protocol_version().is_some_and(|version| version < ProtocolVersion::V_2026_07_28) {
                    peer.notify_resource_updated(from_value(json!({ "uri": "fixture://text" })).unwrap()).await.map_err(failed)?;
                }
                said("touched")
            }
            "grown" => said("grown"),
            _ => Err(ErrorData::invalid_params(format!("no tool {name}"), None)),
        }
    }
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let capabilities = json!({
            "tools": { "listChanged": true }, "prompts": {}, "resources": { "subscribe": true }, "completions": {}, "logging": {},
        });
        ServerConfig::new(from_value(capabilities).unwrap())
    }

    async fn list_tools(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListToolsResult, ErrorData> {
        let has_grown = self.0.has_grown.load(Ordering::SeqCst);
        let list = tools().into_iter().filter(|tool| has_grown || tool.0 != "grown").map(|(name, description, properties)| {
            json!({ "name": name, "description": description, "inputSchema": { "type": "object", "properties": properties } })
        });
        Ok(from_value(json!({ "tools": list.collect::<Vec<_>>() })).unwrap())
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let given = Value::Object(request.arguments.clone().unwrap_or_default());
        self.run(&request.name, &given, &request, context).await
    }

    async fn list_prompts(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListPromptsResult, ErrorData> {
        Ok(from_value(json!({ "prompts": [{ "name": "hello", "arguments": [{ "name": "who" }] }] })).unwrap())
    }

    async fn get_prompt(&self, request: GetPromptRequestParams, _: RequestContext<RoleServer>) -> Result<GetPromptResponse, ErrorData> {
        let who = request.arguments.and_then(|all| all.get("who").cloned()).unwrap_or_default();
        let text = format!("Hello, {}", who.as_str().unwrap_or("?"));
        Ok(from_value::<GetPromptResult>(json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] })).unwrap().into())
    }

    async fn list_resources(&self, _: Option<PaginatedRequestParams>, _: RequestContext<RoleServer>) -> Result<ListResourcesResult, ErrorData> {
        Ok(from_value(json!({ "resources": [{ "uri": "fixture://text", "name": "text" }] })).unwrap())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(from_value(json!({ "resourceTemplates": [{ "uriTemplate": "fixture://item/{id}", "name": "item" }] })).unwrap())
    }

    async fn read_resource(&self, request: ReadResourceRequestParams, _: RequestContext<RoleServer>) -> Result<ReadResourceResponse, ErrorData> {
        let text = request.uri.replace("fixture://text", "hello").replace("fixture://item/", "item ");
        Ok(from_value::<ReadResourceResult>(json!({ "contents": [{ "uri": request.uri, "text": text }] })).unwrap().into())
    }

    async fn complete(&self, request: CompleteRequestParams, _: RequestContext<RoleServer>) -> Result<CompleteResult, ErrorData> {
        let begin = request.argument.value;
        let values: Vec<_> = ["world", "word"].into_iter().filter(|word| word.starts_with(&begin)).collect();
        Ok(from_value(json!({ "completion": { "values": values } })).unwrap())
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.changes.subscribe();
        loop {
            tokio::select! {
                _ = context.cancelled() => return Ok(()),
                change = changes.recv() => {
                    let _ = match change {
                        Ok("tools") => context.sink().notify_tool_list_changed().await.map(|_| ()),
                        Ok(_) => context.sink().notify_resource_updated("fixture://text").await.map(|_| ()),
                        Err(_) => return Ok(()),
                    };
                }
            }
        }
    }
}

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let shared = Shared {
        count: AtomicUsize::new(0), ended: AtomicUsize::new(0), has_grown: AtomicBool::new(false), changes: broadcast::channel(16).0,
    };
    let fixture = Fixture(Arc::new(shared));
    match words[0].as_str() {
        "client" => client::run(&words[1], &words[2], &words[3..]).await,
        "stdio" => {
            let service = fixture.serve(rmcp::transport::stdio()).await.unwrap();
            let _ = service.waiting().await;
        }
        _ => {
            let config = StreamableHttpServerConfig::default();
            let service = StreamableHttpService::new(move || Ok(fixture.clone()), Arc::new(LocalSessionManager::default()), config);
            let at = format!("127.0.0.1:{}", std::env::var("PORT").unwrap_or_default());
            let listener = tokio::net::TcpListener::bind(at).await.unwrap();
            axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
        }
    }
}
