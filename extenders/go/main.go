// Command seats is a sample scheduler extender: licences counted per node.
//
// Whoever hands out the licences writes how many a node has left into the node's annotation licences.example.com/free, and a
// pod says how many it needs in its annotation licences.example.com/wanted. Filter turns down the nodes that have too few,
// prioritize prefers those that have most left. The Python and TypeScript samples answer the same.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"
)

const (
	free         = "licences.example.com/free"
	wanted       = "licences.example.com/wanted"
	highestScore = 10
	// Seconds after which a pod that was turned down is worth another try: licences come back unannounced.
	retryAfter = 15
	// 5000 whole nodes of 13 KB.
	maxBodyBytes = 64 << 20
)

var errNeedsNodes = errors.New("this extender needs whole nodes: set nodeCacheCapable: false for it")

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 8888, "0 takes any free port")
	cert := flag.String("cert", "", "PEM file: serve over TLS")
	key := flag.String("key", "", "PEM file")
	flag.Parse()

	listener, err := net.Listen("tcp", net.JoinHostPort(*host, strconv.Itoa(*port)))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: 10 * time.Second}
	scheme := "http"
	if *cert != "" {
		scheme = "https"
	}
	fmt.Printf("listening on %s://%s\n", scheme, listener.Addr())

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-stop.Done()
		patience, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(patience)
	}()
	if *cert != "" {
		err = server.ServeTLS(listener, *cert, *key)
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-done
}

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /filter", serveFilter)
	mux.HandleFunc("POST /prioritize", servePrioritize)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	return mux
}

func serveFilter(w http.ResponseWriter, r *http.Request) {
	args, err := readArgs(w, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, r.URL.Path+": "+err.Error())
		return
	}
	result := filter(args)
	if len(result.FailedNodes) > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	answer(w, http.StatusOK, result)
}

func servePrioritize(w http.ResponseWriter, r *http.Request) {
	args, err := readArgs(w, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, r.URL.Path+": "+err.Error())
		return
	}
	scores, err := prioritize(args)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer(w, http.StatusOK, scores)
}

// filter says which nodes have licences enough.
func filter(args *ExtenderArgs) *ExtenderFilterResult {
	result := &ExtenderFilterResult{
		FailedNodes:                map[string]string{},
		FailedAndUnresolvableNodes: map[string]string{},
	}
	text := args.Pod.Metadata.Annotations[wanted]
	need, ok := number(args.Pod.Metadata.Annotations, wanted)
	if !ok {
		reason := fmt.Sprintf("pod's annotation %s is no number: %s", wanted, text)
		return turnDownAll(args, result, reason)
	}
	nodes, err := wholeNodes(args)
	if err != nil {
		return &ExtenderFilterResult{Error: err.Error()}
	}
	result.Nodes = &NodeList{Metadata: json.RawMessage("{}"), Items: []json.RawMessage{}}
	for _, node := range nodes {
		name, annotations := node.Metadata.Name, node.Metadata.Annotations
		left, ok := number(annotations, free)
		_, given := annotations[free]
		switch {
		case need > 0 && !given:
			result.FailedAndUnresolvableNodes[name] = "node has no licences"
		case !ok:
			result.FailedAndUnresolvableNodes[name] = fmt.Sprintf("node's annotation %s is no number", free)
		case left < need:
			result.FailedNodes[name] = fmt.Sprintf("%d licences wanted, %d free", need, left)
		default:
			result.Nodes.Items = append(result.Nodes.Items, node.Raw)
		}
	}
	return result
}

// turnDownAll answers in the form that was asked in.
func turnDownAll(args *ExtenderArgs, result *ExtenderFilterResult, reason string) *ExtenderFilterResult {
	names := []string{}
	if nodes, err := wholeNodes(args); err == nil {
		for _, node := range nodes {
			names = append(names, node.Metadata.Name)
		}
		result.Nodes = &NodeList{Metadata: json.RawMessage("{}"), Items: []json.RawMessage{}}
	} else {
		if args.NodeNames != nil {
			names = *args.NodeNames
		}
		result.NodeNames = &[]string{}
	}
	for _, name := range names {
		result.FailedAndUnresolvableNodes[name] = reason
	}
	return result
}

// prioritize scores the part of the licences that a node has left, of what the best of these nodes has.
func prioritize(args *ExtenderArgs) ([]HostPriority, error) {
	nodes, err := wholeNodes(args)
	if err != nil {
		return nil, err
	}
	most := int64(0)
	for _, node := range nodes {
		left, _ := number(node.Metadata.Annotations, free)
		most = max(most, left)
	}
	scores := make([]HostPriority, 0, len(nodes))
	for _, node := range nodes {
		left, _ := number(node.Metadata.Annotations, free)
		score := int64(0)
		if most > 0 {
			score = highestScore * left / most
		}
		scores = append(scores, HostPriority{Host: node.Metadata.Name, Score: score})
	}
	return scores, nil
}

func wholeNodes(args *ExtenderArgs) ([]Node, error) {
	if args.Nodes == nil {
		return nil, errNeedsNodes
	}
	nodes := make([]Node, len(args.Nodes.Items))
	for i, raw := range args.Nodes.Items {
		if err := json.Unmarshal(raw, &nodes[i].Object); err != nil {
			return nil, err
		}
		nodes[i].Raw = raw
	}
	return nodes, nil
}

var digits = regexp.MustCompile(`^[0-9]{1,9}$`)

// number reads an annotation that must be a number: 0 without it, false if it is something else.
func number(annotations map[string]string, key string) (int64, bool) {
	text, given := annotations[key]
	if !given {
		return 0, true
	}
	if !digits.MatchString(text) {
		return 0, false
	}
	value, err := strconv.ParseInt(text, 10, 64)
	return value, err == nil
}

func readArgs(w http.ResponseWriter, r *http.Request) (*ExtenderArgs, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return nil, err
	}
	args := &ExtenderArgs{}
	if err := json.Unmarshal(body, args); err != nil {
		return nil, err
	}
	if args.Pod == nil {
		return nil, errors.New("there is no Pod in the request")
	}
	return args, nil
}

// refuse says in the body what went wrong: the scheduler shows it.
func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"Error": text})
}

func answer(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		log.Printf("answering: %v", err)
	}
}
