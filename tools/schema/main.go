// Command schema writes src/apiserver/schema/generated from the Go types of k8s.io/api: what the API server has to know
// about the fields of its kinds. See README.md.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The group-versions whose kinds are described, and their packages.
var groups = []struct {
	gv   schema.GroupVersion
	pkg  string
	into func(*runtime.Scheme) error
}{
	{corev1.SchemeGroupVersion, "k8s.io/api/core/v1", corev1.AddToScheme},
	{admissionregistrationv1.SchemeGroupVersion, "k8s.io/api/admissionregistration/v1", admissionregistrationv1.AddToScheme},
	{apiextensionsv1.SchemeGroupVersion, apiextensionsPackage, apiextensionsv1.AddToScheme},
	{apiregistrationv1.SchemeGroupVersion, "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1", apiregistrationv1.AddToScheme},
	{apidiscoveryv2.SchemeGroupVersion, "k8s.io/api/apidiscovery/v2", apidiscoveryv2.AddToScheme},
	{appsv1.SchemeGroupVersion, "k8s.io/api/apps/v1", appsv1.AddToScheme},
	{authenticationv1.SchemeGroupVersion, "k8s.io/api/authentication/v1", authenticationv1.AddToScheme},
	{authorizationv1.SchemeGroupVersion, "k8s.io/api/authorization/v1", authorizationv1.AddToScheme},
	{autoscalingv1.SchemeGroupVersion, "k8s.io/api/autoscaling/v1", autoscalingv1.AddToScheme},
	{autoscalingv2.SchemeGroupVersion, "k8s.io/api/autoscaling/v2", autoscalingv2.AddToScheme},
	{batchv1.SchemeGroupVersion, "k8s.io/api/batch/v1", batchv1.AddToScheme},
	{certificatesv1.SchemeGroupVersion, "k8s.io/api/certificates/v1", certificatesv1.AddToScheme},
	{coordinationv1.SchemeGroupVersion, "k8s.io/api/coordination/v1", coordinationv1.AddToScheme},
	{discoveryv1.SchemeGroupVersion, "k8s.io/api/discovery/v1", discoveryv1.AddToScheme},
	{eventsv1.SchemeGroupVersion, "k8s.io/api/events/v1", eventsv1.AddToScheme},
	{flowcontrolv1.SchemeGroupVersion, "k8s.io/api/flowcontrol/v1", flowcontrolv1.AddToScheme},
	{networkingv1.SchemeGroupVersion, "k8s.io/api/networking/v1", networkingv1.AddToScheme},
	{nodev1.SchemeGroupVersion, "k8s.io/api/node/v1", nodev1.AddToScheme},
	{policyv1.SchemeGroupVersion, "k8s.io/api/policy/v1", policyv1.AddToScheme},
	{rbacv1.SchemeGroupVersion, "k8s.io/api/rbac/v1", rbacv1.AddToScheme},
	{resourcev1.SchemeGroupVersion, "k8s.io/api/resource/v1", resourcev1.AddToScheme},
	{schedulingv1.SchemeGroupVersion, "k8s.io/api/scheduling/v1", schedulingv1.AddToScheme},
	{storagev1.SchemeGroupVersion, "k8s.io/api/storage/v1", storagev1.AddToScheme},
}

// Kinds of meta/v1, which the scheme holds once per group-version.
var metaKinds = []any{
	metav1.Status{}, metav1.DeleteOptions{}, metav1.CreateOptions{}, metav1.UpdateOptions{}, metav1.PatchOptions{},
	metav1.GetOptions{}, metav1.ListOptions{}, metav1.APIGroup{}, metav1.APIGroupList{}, metav1.APIResourceList{},
	metav1.APIVersions{}, metav1.PartialObjectMetadata{}, metav1.PartialObjectMetadataList{},
}

const metaPackage = "k8s.io/apimachinery/pkg/apis/meta/v1"
const apiextensionsPackage = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

// Types with a JSON form of their own; the reader knows both their forms.
var specials = map[string]string{
	"k8s.io/apimachinery/pkg/api/resource.Quantity":        "@Quantity",
	metaPackage + ".Time":                                  "@Time",
	metaPackage + ".MicroTime":                             "@MicroTime",
	metaPackage + ".Duration":                              "@Duration",
	metaPackage + ".FieldsV1":                              "@FieldsV1",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":      "@IntOrString",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":         "@RawExtension",
	apiextensionsPackage + ".JSON":                         "@JSON",
	apiextensionsPackage + ".JSONSchemaPropsOrArray":       "@SchemaOrArray",
	apiextensionsPackage + ".JSONSchemaPropsOrBool":        "@SchemaOrBool",
	apiextensionsPackage + ".JSONSchemaPropsOrStringArray": "@SchemaOrStringArray",
}

// field is one JSON field; its short names are explained in src/apiserver/schema/type-schema.ts.
type field struct {
	Name     string   `json:"-"`
	Number   int      `json:"n,omitempty"`
	Type     string   `json:"t"`
	Pointer  bool     `json:"p,omitempty"`
	Always   bool     `json:"a,omitempty"`
	OmitZero bool     `json:"z,omitempty"`
	Required bool     `json:"r,omitempty"`
	Default  any      `json:"d,omitempty"`
	Enum     []string `json:"e,omitempty"`
	Strategy string   `json:"ps,omitempty"`
	MergeKey string   `json:"pk,omitempty"`
	ListType string   `json:"lt,omitempty"`
	ListKeys []string `json:"lk,omitempty"`
	MapType  string   `json:"mt,omitempty"`
	doc      string
}

type message struct {
	Name   string
	Group  *schema.GroupVersion
	Atomic bool
	Fields []field
	doc    string
}

type generator struct {
	sources  *sources
	messages map[string]map[string]*message // by package, by name
	kinds    map[string]map[string]bool     // by package, names
}

func main() {
	out := "../../src/apiserver/schema"
	if len(os.Args) > 1 {
		out = os.Args[1]
	}
	scheme := runtime.NewScheme()
	g := &generator{sources: newSources(), messages: map[string]map[string]*message{}, kinds: map[string]map[string]bool{}}
	groupOf := map[string]schema.GroupVersion{metaPackage: {Version: "v1"}}
	packages := []string{metaPackage}
	for _, group := range groups {
		check(group.into(scheme))
		groupOf[group.pkg] = group.gv
		packages = append(packages, group.pkg)
		for _, t := range scheme.KnownTypes(group.gv) {
			if t.PkgPath() == group.pkg {
				g.kind(t)
			}
		}
	}
	for _, kind := range metaKinds {
		g.kind(reflect.TypeOf(kind))
	}
	folder := filepath.Join(out, "generated")
	typesFolder := filepath.Join(out, "../../kube/generated")
	for _, one := range []string{folder, typesFolder} {
		check(os.RemoveAll(one))
		check(os.MkdirAll(one, 0o755))
	}
	for _, pkg := range packages {
		g.writePackage(folder, pkg, groupOf[pkg])
		g.writeTypes(typesFolder, pkg)
	}
	writeIndex(folder, packages, groupOf)
	writeSamples(filepath.Join(out, "testing", "samples.json"), scheme)
}

func (g *generator) kind(t reflect.Type) {
	if g.kinds[t.PkgPath()] == nil {
		g.kinds[t.PkgPath()] = map[string]bool{}
	}
	g.kinds[t.PkgPath()][t.Name()] = true
	g.typeName(t, t.PkgPath())
}

// typeName says how `t` is written in a field of package `from`, and describes it when it is a struct.
func (g *generator) typeName(t reflect.Type, from string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, ok := specials[t.PkgPath()+"."+t.Name()]; ok {
		return name
	}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Float64:
		return t.Kind().String()
	case reflect.Uint8:
		return "byte"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		// Named slices are messages of their own in Protobuf.
		if t.Name() == "ExtraValue" || t.Name() == "Verbs" {
			return "@ExtraValue"
		}
		return "[]" + g.typeName(t.Elem(), from)
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			panic("map with keys that are not strings: " + t.String())
		}
		return "{}" + g.typeName(t.Elem(), from)
	case reflect.Struct:
		g.describe(t)
		if t.PkgPath() == from {
			return t.Name()
		}
		return shortPackage(t.PkgPath()) + "." + t.Name()
	}
	panic("no schema for " + t.String())
}

func (g *generator) describe(t reflect.Type) {
	if g.messages[t.PkgPath()] == nil {
		g.messages[t.PkgPath()] = map[string]*message{}
	}
	if g.messages[t.PkgPath()][t.Name()] != nil {
		return
	}
	source := g.sources.typeOf(t.PkgPath(), t.Name())
	m := &message{Name: t.Name(), doc: docText(source.doc), Atomic: marker(source.doc, "structType") == "atomic"}
	g.messages[t.PkgPath()][t.Name()] = m
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("json"), ",")
		if tag[0] == "-" || !f.IsExported() {
			continue
		}
		inline := f.Anonymous && tag[0] == ""
		if f.Type == reflect.TypeOf(metav1.TypeMeta{}) {
			for _, name := range []string{"kind", "apiVersion"} {
				doc := g.sources.typeOf(metaPackage, "TypeMeta").fields[strings.ToUpper(name[:1])+name[1:]]
				if name == "apiVersion" {
					doc = g.sources.typeOf(metaPackage, "TypeMeta").fields["APIVersion"]
				}
				m.Fields = append(m.Fields, field{Name: name, Type: "string", doc: docText(doc)})
			}
			continue
		}
		comment := source.fields[f.Name]
		described := field{
			Name:     tag[0],
			Number:   protobufNumber(f.Tag.Get("protobuf")),
			Type:     g.typeName(f.Type, t.PkgPath()),
			Pointer:  f.Type.Kind() == reflect.Pointer,
			Strategy: f.Tag.Get("patchStrategy"),
			MergeKey: f.Tag.Get("patchMergeKey"),
			ListType: marker(comment, "listType"),
			ListKeys: markers(comment, "listMapKey"),
			MapType:  marker(comment, "mapType"),
			doc:      docText(comment),
		}
		described.OmitZero = slices.Contains(tag[1:], "omitzero")
		omitted := described.OmitZero || slices.Contains(tag[1:], "omitempty")
		described.Always = !omitted && !inline
		described.Required = !omitted && !inline && !hasMarker(comment, "optional")
		if text := marker(comment, "default"); text != "" {
			if constant, ok := strings.CutPrefix(text, "ref("); ok {
				described.Default = g.sources.constant(t.PkgPath(), strings.TrimSuffix(constant, ")"))
			} else {
				check(json.Unmarshal([]byte(text), &described.Default))
			}
		}
		if kind := marker(comment, "structType"); kind != "" {
			described.MapType = kind
		}
		element := f.Type
		if element.Kind() == reflect.Pointer || element.Kind() == reflect.Slice {
			element = element.Elem()
		}
		if element.Kind() == reflect.String && element.PkgPath() != "" {
			var explained string
			described.Enum, explained = g.sources.enum(element.PkgPath(), element.Name())
			if explained != "" {
				described.doc += "\n\nPossible enum values:\n" + explained
			}
		}
		if inline {
			described.Name = "+" + f.Name
		} else if described.Name == "" {
			described.Name = f.Name
		}
		m.Fields = append(m.Fields, described)
	}
}

func (g *generator) writePackage(folder, pkg string, gv schema.GroupVersion) {
	var types, docs bytes.Buffer
	kinds := []string{}
	for name := range g.kinds[pkg] {
		kinds = append(kinds, name)
	}
	sort.Strings(kinds)
	names := []string{}
	for name := range g.messages[pkg] {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		m := g.messages[pkg][name]
		if i > 0 {
			types.WriteString(",\n")
			docs.WriteString(",\n")
		}
		fmt.Fprintf(&types, "%q:", name)
		types.WriteByte('{')
		if m.Atomic {
			types.WriteString(`"+":"atomic",`)
		}
		descriptions := map[string]string{}
		if m.doc != "" {
			descriptions[""] = m.doc
		}
		for j, f := range m.Fields {
			if j > 0 {
				types.WriteByte(',')
			}
			fmt.Fprintf(&types, "%q:%s", f.Name, toJSON(f))
			if f.doc != "" && !strings.HasPrefix(f.Name, "+") {
				descriptions[f.Name] = f.doc
			}
		}
		// An object without any field still ends well-formed.
		if bytes.HasSuffix(types.Bytes(), []byte(",")) {
			types.Truncate(types.Len() - 1)
		}
		types.WriteByte('}')
		fmt.Fprintf(&docs, "%q:%s", name, toJSON(descriptions))
	}
	base := strings.ReplaceAll(shortPackage(pkg), ".", "-")
	header := "// Generated by tools/schema from " + pkg + "; do not edit.\n"
	body := header + fmt.Sprintf("/** Names of the kinds in %s. */\nexport const kinds = %s;\n", gv, toJSON(kinds)) +
		"/** JSON: see ../type-schema.ts. */\nexport const types = " + template("{\n"+types.String()+"\n}") + ";\n"
	check(os.WriteFile(filepath.Join(folder, base+".ts"), []byte(body), 0o644))
	body = header + "/** JSON: descriptions by type and field; the type's own under the empty name. */\nexport const descriptions = " +
		template("{\n"+docs.String()+"\n}") + ";\n"
	check(os.WriteFile(filepath.Join(folder, base+".descriptions.ts"), []byte(body), 0o644))
}

// writeIndex writes the table of packages that src/apiserver/schema/packages.ts reads.
func writeIndex(folder string, packages []string, groupOf map[string]schema.GroupVersion) {
	var imports, table, descriptions bytes.Buffer
	for _, pkg := range packages {
		short := shortPackage(pkg)
		file := strings.ReplaceAll(short, ".", "-")
		gv := groupOf[pkg].String()
		if pkg == metaPackage {
			gv = "meta.k8s.io/v1"
		}
		openapi := "io.k8s." + strings.ReplaceAll(strings.TrimPrefix(pkg, "k8s.io/"), "/", ".")
		fmt.Fprintf(&imports, "import * as %s from './%s.ts';\n", typescriptAlias(short), file)
		fmt.Fprintf(&table, "  { name: '%s', apiVersion: '%s', openapi: '%s', ...%s },\n", short, gv, openapi, typescriptAlias(short))
		fmt.Fprintf(&descriptions, "  '%s': () => import('./%s.descriptions.ts'),\n", short, file)
	}
	body := "// Generated by tools/schema; do not edit.\n" + imports.String() +
		"import type { TypePackage } from '../type-schema.ts';\n\n" +
		"/** The packages of the API, one module each. */\nexport const PACKAGES: readonly TypePackage[] = [\n" + table.String() + "];\n\n" +
		"/** Modules with descriptions, loaded when asked for; written out one by one so that a bundler sees each. */\n" +
		"export const DESCRIPTIONS: Readonly<Record<string, () => Promise<{ readonly descriptions: string }>>> = {\n" +
		descriptions.String() + "};\n"
	check(os.WriteFile(filepath.Join(folder, "index.ts"), []byte(body), 0o644))
}

// template quotes text as a template literal of JavaScript.
func template(text string) string {
	return "`" + strings.NewReplacer("\\", "\\\\", "`", "\\`", "${", "\\${").Replace(text) + "`"
}

// shortPackage names a package by its last two folders: "core.v1".
func shortPackage(pkg string) string {
	parts := strings.Split(pkg, "/")
	return strings.Join(parts[len(parts)-2:], ".")
}

func protobufNumber(tag string) int {
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return 0
	}
	number := 0
	_, err := fmt.Sscanf(parts[1], "%d", &number)
	check(err)
	return number
}

func toJSON(value any) string {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(value))
	return strings.TrimSuffix(buffer.String(), "\n")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
