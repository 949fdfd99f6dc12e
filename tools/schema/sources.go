package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"sort"
	"strconv"
	"strings"
)

// sources reads what reflection cannot see: comments, and the constants of enumerated types.
type sources struct {
	packages map[string]*sourcePackage
}

type sourcePackage struct {
	types  map[string]*sourceType
	enums  map[string][]enumValue
	consts map[string]string // text constants
}

type sourceType struct {
	doc    string
	fields map[string]string // comments by the field's name in Go
}

type enumValue struct{ value, doc string }

func newSources() *sources { return &sources{packages: map[string]*sourcePackage{}} }

func (s *sources) load(path string) *sourcePackage {
	if found := s.packages[path]; found != nil {
		return found
	}
	result := &sourcePackage{types: map[string]*sourceType{}, enums: map[string][]enumValue{}, consts: map[string]string{}}
	s.packages[path] = result
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	check(err)
	notTest := func(info fs.FileInfo) bool { return !strings.HasSuffix(info.Name(), "_test.go") }
	parsed, err := parser.ParseDir(token.NewFileSet(), strings.TrimSpace(string(dir)), notTest, parser.ParseComments)
	check(err)
	for _, pkg := range parsed {
		for _, file := range pkg.Files {
			for _, declaration := range file.Decls {
				if general, ok := declaration.(*ast.GenDecl); ok {
					result.add(general)
				}
			}
		}
	}
	for _, values := range result.enums {
		sort.Slice(values, func(i, j int) bool { return values[i].value < values[j].value })
	}
	return result
}

func (p *sourcePackage) add(declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			described := &sourceType{doc: text(spec.Doc), fields: map[string]string{}}
			if spec.Doc == nil {
				described.doc = text(declaration.Doc)
			}
			if structure, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range structure.Fields.List {
					for _, name := range field.Names {
						described.fields[name.Name] = text(field.Doc)
					}
				}
			}
			p.types[spec.Name.Name] = described
		case *ast.ValueSpec:
			if declaration.Tok != token.CONST {
				continue
			}
			name, typed := spec.Type.(*ast.Ident)
			for i, value := range spec.Values {
				literal, ok := value.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					continue
				}
				unquoted, err := strconv.Unquote(literal.Value)
				check(err)
				p.consts[spec.Names[i].Name] = unquoted
				if typed {
					p.enums[name.Name] = append(p.enums[name.Name], enumValue{unquoted, docText(text(spec.Doc))})
				}
			}
		}
	}
}

func (s *sources) typeOf(path, name string) *sourceType {
	if found := s.load(path).types[name]; found != nil {
		return found
	}
	panic("no source of " + path + "." + name)
}

func (s *sources) constant(path, name string) string {
	if value, ok := s.load(path).consts[name]; ok {
		return value
	}
	panic("no constant " + path + "." + name)
}

// enum lists the values of a type marked +enum, and a list item for each that explains it.
func (s *sources) enum(path, name string) ([]string, string) {
	described := s.load(path).types[name]
	if described == nil || !hasMarker(described.doc, "enum") {
		return nil, ""
	}
	values := []string{}
	lines := []string{}
	for _, value := range s.load(path).enums[name] {
		values = append(values, value.value)
		lines = append(lines, strings.TrimRight(" - `"+strconv.Quote(value.value)+"` "+value.doc, " "))
	}
	return values, strings.Join(lines, "\n")
}

// text is a comment without its slashes; unlike CommentGroup.Text it keeps lines that look like directives.
func text(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	lines := []string{}
	for _, comment := range group.List {
		content := strings.TrimPrefix(comment.Text, "//")
		content = strings.TrimSuffix(strings.TrimPrefix(content, "/*"), "*/")
		for _, line := range strings.Split(content, "\n") {
			lines = append(lines, strings.TrimPrefix(line, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// markers lists the values of `+name=value` lines.
func markers(doc, name string) []string {
	var values []string
	for _, line := range strings.Split(doc, "\n") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "+"+name+"="); ok {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

func marker(doc, name string) string {
	if values := markers(doc, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func hasMarker(doc, name string) bool {
	for _, line := range strings.Split(doc, "\n") {
		line = strings.TrimSpace(line)
		if line == "+"+name || strings.HasPrefix(line, "+"+name+"=") {
			return true
		}
	}
	return false
}

// docText makes a description of a comment as upstream's OpenAPI does: lines flow together, empty lines part
// paragraphs, indented lines stay, markers and notes to developers go.
func docText(comment string) string {
	comment, _, _ = strings.Cut(comment, "---")
	var out strings.Builder
	trimmed := func() {
		kept := strings.TrimSuffix(out.String(), " ")
		out.Reset()
		out.WriteString(kept)
	}
	for _, line := range strings.Split(comment, "\n") {
		line = strings.TrimRight(line, " ")
		leading := strings.TrimLeft(line, " ")
		switch {
		case line == "":
			trimmed()
			out.WriteString("\n\n")
		case strings.HasPrefix(leading, "TODO"), strings.HasPrefix(leading, "+"):
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "\t"):
			trimmed()
			out.WriteString("\n" + line + "\n")
		default:
			out.WriteString(line + " ")
		}
	}
	return strings.TrimSpace(out.String())
}
