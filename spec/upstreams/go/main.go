// A server made with the official Go SDK:  server stdio, or sse or http, at the port of the variable PORT.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type echoed struct {
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

func text(value string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: value}}}
}

func fixture(count *atomic.Int64) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "go", Version: "1"}, nil)
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
	server.AddPrompt(&mcp.Prompt{Name: "hello", Arguments: []*mcp.PromptArgument{{Name: "who"}}},
		func(ctx context.Context, request *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			content := &mcp.TextContent{Text: "Hello, " + request.Params.Arguments["who"]}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: content}}}, nil
		})
	server.AddResource(&mcp.Resource{URI: "fixture://text", Name: "text"},
		func(ctx context.Context, request *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: request.Params.URI, Text: "hello"}}}, nil
		})
	return server
}

func main() {
	var count atomic.Int64
	server := fixture(&count)
	one := func(*http.Request) *mcp.Server { return server }
	at := "127.0.0.1:" + os.Getenv("PORT")
	switch os.Args[1] {
	case "stdio":
		log.Fatal(server.Run(context.Background(), &mcp.StdioTransport{}))
	case "sse":
		log.Fatal(http.ListenAndServe(at, mcp.NewSSEHandler(one, nil)))
	case "http":
		log.Fatal(http.ListenAndServe(at, mcp.NewStreamableHTTPHandler(one, nil)))
	}
}
