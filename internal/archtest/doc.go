// Package archtest holds the import rules of Ferry: which package may know which other, and which one is the only door
// to a library. The rules are the table in table_test.go; a package that is not in it fails the test.
package archtest
