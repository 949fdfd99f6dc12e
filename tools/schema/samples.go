package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// sample is one object in both encodings, as the Go client writes them.
type sample struct {
	Name     string          `json:"name"`
	JSON     json.RawMessage `json:"json"`
	Protobuf string          `json:"protobuf"`
}

// writeSamples encodes the manifests in samples/ and a few objects without any value.
func writeSamples(path string, scheme *runtime.Scheme) {
	serializer := protobuf.NewSerializer(scheme, scheme)
	samples := []sample{}
	encode := func(name string, object runtime.Object) {
		var binary bytes.Buffer
		check(serializer.Encode(object, &binary))
		text, err := json.Marshal(object)
		check(err)
		samples = append(samples, sample{name, text, base64.StdEncoding.EncodeToString(binary.Bytes())})
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "NodeList"},
		{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "batch", Version: "v1", Kind: "CronJob"},
		{Group: "policy", Version: "v1", Kind: "Eviction"}, {Group: "apps", Version: "v1", Kind: "DeleteOptions"},
	} {
		object, err := scheme.New(gvk)
		check(err)
		object.GetObjectKind().SetGroupVersionKind(gvk)
		encode("empty "+gvk.Kind, object)
	}
	files, err := filepath.Glob("samples/*.yaml")
	check(err)
	sort.Strings(files)
	for _, file := range files {
		content, err := os.ReadFile(file)
		check(err)
		for _, document := range strings.Split(string(content), "\n---\n") {
			text, err := yaml.ToJSON([]byte(document))
			check(err)
			var meta metav1.TypeMeta
			check(json.Unmarshal(text, &meta))
			object, err := scheme.New(meta.GroupVersionKind())
			check(err)
			decoder := json.NewDecoder(bytes.NewReader(text))
			decoder.DisallowUnknownFields()
			check(decoder.Decode(object))
			encode(strings.TrimSuffix(filepath.Base(file), ".yaml")+" "+meta.Kind, object)
		}
	}
	var out bytes.Buffer
	out.WriteString("[\n")
	for i, one := range samples {
		if i > 0 {
			out.WriteString(",\n")
		}
		out.WriteString(toJSON(one))
	}
	out.WriteString("\n]\n")
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	check(os.WriteFile(path, out.Bytes(), 0o644))
}
