package trial

import (
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ferry-forward/ferry/internal/forward/jq"
)

// jsonDifference is a difference of two JSON values.
type jsonDifference struct{ field, wanted, got string }

const nothing = "nothing"

// differences returns where two JSON values differ, by paths that begin with field.
func differences(field string, wanted, got any) []jsonDifference {
	switch w := wanted.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return objectDifferences(field, w, g)
		}
	case []any:
		if g, ok := got.([]any); ok {
			return listDifferences(field, w, g)
		}
	case nil, bool, string:
		if wanted == got {
			return nil
		}
	default:
		if sameNumber(wanted, got) {
			return nil
		}
	}
	return []jsonDifference{{field, jsonText(wanted), jsonText(got)}}
}

func objectDifferences(field string, wanted, got map[string]any) []jsonDifference {
	names := slices.Collect(maps.Keys(wanted))
	for name := range got {
		if _, both := wanted[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all []jsonDifference
	for _, name := range names {
		at := field + member(name)
		w, isWanted := wanted[name]
		g, isThere := got[name]
		switch {
		case !isThere:
			all = append(all, jsonDifference{at, jsonText(w), nothing})
		case !isWanted:
			all = append(all, jsonDifference{at, nothing, jsonText(g)})
		default:
			all = append(all, differences(at, w, g)...)
		}
	}
	return all
}

func listDifferences(field string, wanted, got []any) []jsonDifference {
	var all []jsonDifference
	for i := range max(len(wanted), len(got)) {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case i >= len(got):
			all = append(all, jsonDifference{at, jsonText(wanted[i]), nothing})
		case i >= len(wanted):
			all = append(all, jsonDifference{at, nothing, jsonText(got[i])})
		default:
			all = append(all, differences(at, wanted[i], got[i])...)
		}
	}
	return all
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// member is how jq gets at a member.
func member(name string) string {
	if plainName.MatchString(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// sameNumber compares two numbers by what they are worth, exactly: 1.10 is 1.1, and 20 digits are not rounded.
func sameNumber(a, b any) bool {
	ta, okA := numberText(a)
	tb, okB := numberText(b)
	if !okA || !okB {
		return false
	}
	da, ea := decimal(ta)
	db, eb := decimal(tb)
	return da == db && ea.Cmp(eb) == 0
}

func numberText(v any) (string, bool) {
	if _, isText := v.(string); isText {
		return "", false
	}
	return jq.Text(v)
}

// decimal returns a number's digits, without zeros at either end, and the power of ten that they are to be multiplied by.
func decimal(s string) (digits string, exponent *big.Int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(s), "e")
	exponent, ok := new(big.Int).SetString(strings.TrimPrefix(power, "+"), 10)
	if !ok {
		exponent = new(big.Int)
	}
	sign := ""
	if strings.HasPrefix(mantissa, "-") {
		sign, mantissa = "-", mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	all := strings.TrimLeft(whole+fraction, "0")
	digits = strings.TrimRight(all, "0")
	exponent.Add(exponent, big.NewInt(int64(len(all)-len(digits))))
	if digits == "" {
		return "0", new(big.Int)
	}
	return sign + digits, exponent
}
