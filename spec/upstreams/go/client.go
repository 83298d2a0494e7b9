// A client made with the official Go SDK:  server client PREFIX stdio COMMAND…, or PREFIX sse or http URL.
//
// It tries what a server of spec/upstreams has, whose tools and prompts have PREFIX before their names, and prints a line for each check: `ok NAME`,
// or `not NAME: WHY`. With MODE=legacy in the environment it begins with `initialize`. CHECKS has the names of those to try, with commas between them,
// SECONDS the time that each may take.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var patience = 8 * time.Second

type visitor struct {
	prefix   string
	session  *mcp.ClientSession
	mutex    sync.Mutex
	answer   string
	heard    []string
	progress []float64
}

func (v *visitor) hear(what string) {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	v.heard = append(v.heard, what)
}

func (v *visitor) hasHeard(what string) bool {
	v.mutex.Lock()
	defer v.mutex.Unlock()
	for _, one := range v.heard {
		if one == what {
			return true
		}
	}
	return false
}

func (v *visitor) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			if v.answer != "accept" {
				return &mcp.ElicitResult{Action: v.answer}, nil
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "you"}}, nil
		},
		CreateMessageHandler: func(ctx context.Context, request *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			said := request.Params.Messages[0].Content.(*mcp.TextContent).Text
			return &mcp.CreateMessageResult{Role: "assistant", Model: "m", Content: &mcp.TextContent{Text: "from " + said}}, nil
		},
		LoggingMessageHandler: func(ctx context.Context, request *mcp.LoggingMessageRequest) {
			v.hear(fmt.Sprintf("log %v", request.Params.Data))
		},
		ProgressNotificationHandler: func(ctx context.Context, request *mcp.ProgressNotificationClientRequest) {
			v.mutex.Lock()
			defer v.mutex.Unlock()
			v.progress = append(v.progress, request.Params.Progress)
		},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { v.hear("tools") },
		ResourceUpdatedHandler: func(ctx context.Context, request *mcp.ResourceUpdatedNotificationRequest) {
			v.hear("updated " + request.Params.URI)
		},
	}
}

// Waits until the test holds; the error says for what it waited in vain.
func fact(what string, test func() bool) error {
	for end := time.Now().Add(patience / 2); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if test() {
			return nil
		}
	}
	return fmt.Errorf("waited in vain for %s", what)
}

func equal(wanted, got any) error {
	if w, g := fmt.Sprint(wanted), fmt.Sprint(got); w != g {
		return fmt.Errorf("wanted %.80q, got %.200q", w, g)
	}
	return nil
}

type arguments = map[string]any

func (v *visitor) result(ctx context.Context, name string, given arguments) (*mcp.CallToolResult, error) {
	if given == nil {
		given = arguments{}
	}
	params := &mcp.CallToolParams{Name: v.prefix + name, Arguments: given}
	if name == "steps" || name == "large" {
		params.SetProgressToken("p " + name)
	}
	return v.session.CallTool(ctx, params)
}

func (v *visitor) call(ctx context.Context, name string, given arguments) (string, error) {
	result, err := v.result(ctx, name, given)
	if err != nil {
		return "", err
	}
	if len(result.Content) == 0 {
		return "", fmt.Errorf("the result has no content")
	}
	return result.Content[0].(*mcp.TextContent).Text, nil
}

// Calls the tool, and compares the text that it returns.
func (v *visitor) says(ctx context.Context, wanted, name string, given arguments) error {
	got, err := v.call(ctx, name, given)
	if err != nil {
		return err
	}
	return equal(wanted, got)
}

func (v *visitor) lists(ctx context.Context, name string) bool {
	for tool, err := range v.session.Tools(ctx, nil) {
		if err == nil && tool.Name == v.prefix+name {
			return true
		}
	}
	return false
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *visitor) isNew() bool { return v.session.InitializeResult().ProtocolVersion >= "2026-07-28" }

func (v *visitor) list(ctx context.Context) error { return equal(true, v.lists(ctx, "echo")) }

func (v *visitor) echo(ctx context.Context) error {
	return v.says(ctx, "hi", "echo", arguments{"text": "hi"})
}

func (v *visitor) structured(ctx context.Context) error {
	result, err := v.result(ctx, "add", arguments{"a": 1, "b": 2})
	if err != nil {
		return err
	}
	return equal(map[string]any{"sum": 3}, result.StructuredContent)
}

func (v *visitor) failure(ctx context.Context) error {
	result, err := v.result(ctx, "fail", nil)
	if err != nil {
		return err
	}
	return first(equal(true, result.IsError), equal(1, len(result.Content)))
}

func (v *visitor) unknown(ctx context.Context) error {
	result, err := v.result(ctx, "nothing", nil)
	return equal(true, err != nil || result.IsError)
}

func (v *visitor) steps(ctx context.Context) error {
	if err := v.says(ctx, "done", "steps", arguments{"n": 1}); err != nil {
		return err
	}
	return fact("three steps", func() bool {
		v.mutex.Lock()
		defer v.mutex.Unlock()
		return fmt.Sprint(v.progress) == "[1 2 3]"
	})
}

func (v *visitor) large(ctx context.Context) error {
	got, err := v.call(ctx, "large", arguments{"size": 2 << 20})
	return first(err, equal(2<<20, len(got)))
}

func (v *visitor) log(ctx context.Context) error {
	if !v.isNew() {
		if err := v.session.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"}); err != nil {
			return err
		}
	}
	if err := v.says(ctx, "said", "say", arguments{"text": "a word"}); err != nil {
		return err
	}
	return fact("the log message", func() bool { return v.hasHeard("log a word") })
}

func (v *visitor) elicitation(ctx context.Context) error {
	v.answer = "accept"
	if err := v.says(ctx, "Hello, you", "ask", nil); err != nil {
		return err
	}
	v.answer = "decline"
	return v.says(ctx, "decline", "ask", nil)
}

func (v *visitor) elicitationFirst(ctx context.Context) error {
	v.answer = "accept"
	return v.says(ctx, "Hello, you", "ask_first", nil)
}

func (v *visitor) sampling(ctx context.Context) error {
	return v.says(ctx, "from me", "sample", arguments{"text": "me"})
}

func (v *visitor) roots(ctx context.Context) error {
	return v.says(ctx, "file:///home", "roots", nil)
}

func (v *visitor) ping(ctx context.Context) error {
	if v.isNew() {
		return v.says(ctx, "pong", "ping", nil)
	}
	return first(v.session.Ping(ctx, nil), v.says(ctx, "pong", "ping", nil))
}

func (v *visitor) cancellation(ctx context.Context) error {
	before, err := v.call(ctx, "cancelled", nil)
	if err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	v.call(short, "slow", nil)
	return fact("the end of the call", func() bool {
		now, err := v.call(ctx, "cancelled", nil)
		return err == nil && now != before
	})
}

func (v *visitor) reads(ctx context.Context, wanted, uri string) error {
	result, err := v.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return err
	}
	return equal(wanted, result.Contents[0].Text)
}

func (v *visitor) resource(ctx context.Context) error {
	templates, err := v.session.ListResourceTemplates(ctx, nil)
	if err != nil {
		return err
	}
	return first(equal(1, len(templates.ResourceTemplates)), v.reads(ctx, "hello", "fixture://text"), v.reads(ctx, "item 7", "fixture://item/7"))
}

func (v *visitor) prompt(ctx context.Context) error {
	result, err := v.session.GetPrompt(ctx, &mcp.GetPromptParams{Name: v.prefix + "hello", Arguments: map[string]string{"who": "you"}})
	if err != nil {
		return err
	}
	return equal("Hello, you", result.Messages[0].Content.(*mcp.TextContent).Text)
}

func (v *visitor) completion(ctx context.Context) error {
	result, err := v.session.Complete(ctx, &mcp.CompleteParams{
		Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: v.prefix + "hello"}, Argument: mcp.CompleteParamsArgument{Name: "who", Value: "wor"},
	})
	if err != nil {
		return err
	}
	return equal([]string{"world", "word"}, result.Completion.Values)
}

func (v *visitor) subscription(ctx context.Context) error {
	if err := v.session.Subscribe(ctx, &mcp.SubscribeParams{URI: "fixture://text"}); err != nil {
		return err
	}
	if err := v.says(ctx, "touched", "touch", nil); err != nil {
		return err
	}
	return first(fact("the update", func() bool { return v.hasHeard("updated fixture://text") }),
		v.session.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: "fixture://text"}))
}

func (v *visitor) change(ctx context.Context) error {
	if _, err := v.call(ctx, "grow", nil); err != nil {
		return err
	}
	return first(fact("the notification", func() bool { return v.hasHeard("tools") }),
		fact("the new tool", func() bool { return v.lists(ctx, "grown") }))
}

func transport(kind string, where []string) mcp.Transport {
	switch kind {
	case "stdio":
		return &mcp.CommandTransport{Command: exec.Command(where[0], where[1:]...)}
	case "sse":
		return &mcp.SSEClientTransport{Endpoint: where[0]}
	}
	return &mcp.StreamableClientTransport{Endpoint: where[0]}
}

func client(prefix, kind string, where []string) {
	v := &visitor{prefix: prefix}
	if seconds, err := strconv.Atoi(os.Getenv("SECONDS")); err == nil {
		patience = time.Duration(seconds) * time.Second
	}
	made := mcp.NewClient(&mcp.Implementation{Name: "go", Version: "1"}, v.options())
	made.AddRoots(&mcp.Root{URI: "file:///home"})
	options := &mcp.ClientSessionOptions{}
	if os.Getenv("MODE") == "legacy" {
		options.ProtocolVersion = "2025-11-25"
	}
	session, err := made.Connect(context.Background(), transport(kind, where), options)
	if err != nil {
		fmt.Println("not connect:", strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	v.session = session
	for _, check := range []struct {
		name string
		try  func(context.Context) error
	}{
		{"list", v.list}, {"call", v.echo}, {"structured", v.structured}, {"failure", v.failure}, {"unknown", v.unknown}, {"progress", v.steps},
		{"large", v.large}, {"log", v.log}, {"elicitation", v.elicitation}, {"elicitation_first", v.elicitationFirst}, {"sampling", v.sampling},
		{"roots", v.roots}, {"ping", v.ping}, {"cancellation", v.cancellation}, {"resource", v.resource}, {"prompt", v.prompt},
		{"completion", v.completion}, {"subscription", v.subscription}, {"change", v.change},
	} {
		if only := os.Getenv("CHECKS"); only != "" && !slices.Contains(strings.Split(only, ","), check.name) {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := check.try(ctx); err != nil {
			fmt.Printf("not %s: %.300s\n", check.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", check.name)
		}
		cancel()
	}
	if err := session.Close(); err != nil {
		fmt.Println("not leave:", err)
	} else {
		fmt.Println("ok leave")
	}
}
