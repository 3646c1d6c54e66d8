package main

import "encoding/json"

// The wire contract extender/v1, as far as this extender needs it. k8s.io/kube-scheduler/extender/v1 has the same types with
// everything in them; these keep the program free of dependencies. Go matches keys in any case, as the contract wants.

// ExtenderArgs is what filter and prioritize are asked. Exactly one of Nodes and NodeNames is not nil.
type ExtenderArgs struct {
	Pod       *Object
	Nodes     *NodeList
	NodeNames *[]string
}

// NodeList holds whole nodes; Items are kept as they came, so that they go back untouched.
type NodeList struct {
	Metadata json.RawMessage   `json:"metadata"`
	Items    []json.RawMessage `json:"items"`
}

// Object is the part of a pod or a node that is read.
type Object struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// ExtenderFilterResult is the answer to filter.
type ExtenderFilterResult struct {
	Nodes                      *NodeList
	NodeNames                  *[]string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

// HostPriority is one entry of the answer to prioritize; scores go from 0 to 10.
type HostPriority struct {
	Host  string
	Score int64
}

// Node is a node with the bytes it came in.
type Node struct {
	Object
	Raw json.RawMessage
}
