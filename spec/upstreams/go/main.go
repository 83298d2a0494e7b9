// A server made with the official Go SDK:  server stdio, or sse or http, at the port of the variable PORT; and a client: client.go.
//
// What its tools do stands in spec/helpers/sdks.lua.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type nothing struct{}

type terms struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sum struct {
	Sum int `json:"sum"`
}

type sized struct {
	Size int `json:"size"`
}

type echoed struct {
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

func text(value string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: value}}}
}

func fixture(count *atomic.Int64) *mcp.Server {
	options := &mcp.ServerOptions{
		CompletionHandler: complete,
		SubscribeHandler:  func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error {
			return nil
		},
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, options)
	addAsking(server)
	var ended atomic.Int64
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Echoes."},
		func(ctx context.Context, request *mcp.CallToolRequest, given echoed) (*mcp.CallToolResult, any, error) {
			return text(given.Text), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "counter", Description: "Counts."},
		func(ctx context.Context, request *mcp.CallToolRequest, given echoed) (*mcp.CallToolResult, any, error) {
			return text(fmt.Sprint(count.Add(1))), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "steps", Description: "Reports progress."},
		func(ctx context.Context, request *mcp.CallToolRequest, given echoed) (*mcp.CallToolResult, any, error) {
			for step := 1.0; step <= 3 && request.Params.GetProgressToken() != nil; step++ {
				note := &mcp.ProgressNotificationParams{ProgressToken: request.Params.GetProgressToken(), Progress: step, Total: 3}
				if err := request.Session.NotifyProgress(ctx, note); err != nil {
					return nil, nil, err
				}
			}
			return text("done"), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds, and says the sum as structured content."},
		func(ctx context.Context, request *mcp.CallToolRequest, given terms) (*mcp.CallToolResult, sum, error) {
			return nil, sum{given.A + given.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "fail", Description: "Fails."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			return nil, nil, errors.New("no luck")
		})
	mcp.AddTool(server, &mcp.Tool{Name: "large", Description: "Reports progress, and returns a text of so many bytes."},
		func(ctx context.Context, request *mcp.CallToolRequest, given sized) (*mcp.CallToolResult, any, error) {
			if token := request.Params.GetProgressToken(); token != nil {
				note := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 1}
				if err := request.Session.NotifyProgress(ctx, note); err != nil {
					return nil, nil, err
				}
			}
			return text(strings.Repeat("x", given.Size)), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "say", Description: "Sends a log message."},
		func(ctx context.Context, request *mcp.CallToolRequest, given echoed) (*mcp.CallToolResult, any, error) {
			return text("said"), nil, request.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: given.Text})
		})
	mcp.AddTool(server, &mcp.Tool{Name: "ping", Description: "Pings the client."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			return text("pong"), nil, request.Session.Ping(ctx, nil)
		})
	mcp.AddTool(server, &mcp.Tool{Name: "slow", Description: "Waits until it is cancelled."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			select {
			case <-ctx.Done():
				ended.Add(1)
				return nil, nil, ctx.Err()
			case <-time.After(20 * time.Second):
				return text("late"), nil, nil
			}
		})
	mcp.AddTool(server, &mcp.Tool{Name: "cancelled", Description: "Says how many slow calls have ended."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			return text(fmt.Sprint(ended.Load())), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "grow", Description: "Adds a tool, and says so."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(server, &mcp.Tool{Name: "grown", Description: "Is new."},
				func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
					return text("grown"), nil, nil
				})
			return text("grown"), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "touch", Description: "Says that the resource was updated."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			return text("touched"), nil, server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: "fixture://text"})
		})
	server.AddPrompt(&mcp.Prompt{Name: "hello", Arguments: []*mcp.PromptArgument{{Name: "who"}}},
		func(ctx context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			content := &mcp.TextContent{Text: "Hello, " + request.Params.Arguments["who"]}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: content}}}, nil
		})
	server.AddResource(&mcp.Resource{URI: "fixture://text", Name: "text"},
		func(ctx context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: request.Params.URI, Text: "hello"}}}, nil
		})
	server.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: "fixture://item/{id}", Name: "item"},
		func(ctx context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			id := strings.TrimPrefix(request.Params.URI, "fixture://item/")
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: request.Params.URI, Text: "item " + id}}}, nil
		})
	return server
}

func complete(ctx context.Context, request *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	values := []string{}
	for _, word := range []string{"world", "word"} {
		if strings.HasPrefix(word, request.Params.Argument.Value) {
			values = append(values, word)
		}
	}
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values}}, nil
}

var nameSchema = map[string]any{
	"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}}, "required": []string{"name"},
}

func asked() *mcp.ElicitParams {
	return &mcp.ElicitParams{Mode: "form", Message: "Who are you?", RequestedSchema: nameSchema}
}

func answered(result *mcp.ElicitResult) *mcp.CallToolResult {
	if result.Action != "accept" {
		return text(result.Action)
	}
	return text(fmt.Sprintf("Hello, %v", result.Content["name"]))
}

// The tools that ask the client in the middle of a call.
func addAsking(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Description: "Asks for a name in the middle of the call."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			result, err := request.Session.Elicit(ctx, asked())
			if err != nil {
				return nil, nil, err
			}
			return answered(result), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "ask_first", Description: "Asks for a name before the call, as the SDK has it for both eras."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			if result, ok := request.Params.InputResponses["name"].(*mcp.ElicitResult); ok {
				return answered(result), nil, nil
			}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"name": asked()}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "sample", Description: "Has the client's model answer."},
		func(ctx context.Context, request *mcp.CallToolRequest, given echoed) (*mcp.CallToolResult, any, error) {
			message := &mcp.SamplingMessage{Role: "user", Content: &mcp.TextContent{Text: given.Text}}
			result, err := request.Session.CreateMessage(ctx, &mcp.CreateMessageParams{MaxTokens: 10, Messages: []*mcp.SamplingMessage{message}})
			if err != nil {
				return nil, nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{result.Content}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "roots", Description: "Says the client's roots."},
		func(ctx context.Context, request *mcp.CallToolRequest, given nothing) (*mcp.CallToolResult, any, error) {
			result, err := request.Session.ListRoots(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			uris := []string{}
			for _, root := range result.Roots {
				uris = append(uris, root.URI)
			}
			return text(strings.Join(uris, " ")), nil, nil
		})
}

func main() {
	var count atomic.Int64
	server := fixture(&count)
	one := func(*http.Request) *mcp.Server { return server }
	at := "127.0.0.1:" + os.Getenv("PORT")
	switch os.Args[1] {
	case "client":
		client(os.Args[2], os.Args[3], os.Args[4:])
	case "stdio":
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	case "sse":
		log.Fatal(http.ListenAndServe(at, mcp.NewSSEHandler(one, nil)))
	case "http":
		log.Fatal(http.ListenAndServe(at, mcp.NewStreamableHTTPHandler(one, nil)))
	}
}
