// SPDX-License-Identifier: GPL-2.0

//! Rewrites the sources so that each holds all its mutants.
//!
//! A mutant is a place where `crate::__mutant(NUMBER)` chooses between the code and something else.
//! Tests, constants, types and the arguments of macros stay as they are. A `const fn` cannot ask
//! for the environment, so it loses its `const`, unless a constant needs it; then it has no
//! mutants.

use std::{
    collections::HashSet,
    fs,
    io,
    path::{
        Path,
        PathBuf, //
    }, //
};

use quote::{
    quote,
    ToTokens, //
};
use syn::{
    parse_quote,
    spanned::Spanned,
    visit::Visit,
    visit_mut::{
        self,
        VisitMut, //
    },
    Attribute,
    Block,
    Expr,
    ImplItemFn,
    Item,
    ItemFn,
    Pat,
    Signature,
    Stmt,
    Type, //
};

use crate::{
    operators,
    values, //
};

/// The code that is added to a crate, to select the mutant.
const CHOICE: &str = r#"
extern crate std;
/// Returns whether the mutant with the number is to be run.
#[doc(hidden)]
pub fn __mutant(number: u32) -> bool {
    static ACTIVE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let active = ACTIVE.get_or_init(|| {
        let number = std::env::var("ROCE_MUTANT").ok();
        number.and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
    });
    *active == number
}
"#;

/// Plants the mutants in the crate in directory `root`.
pub(crate) fn plant(root: &str) -> Result<(), String> {
    let mut files = Vec::new();
    find(Path::new(root), &mut files).map_err(|error| format!("{root}: {error}"))?;
    files.sort();
    let mut sources = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|error| format!("{file:?}: {error}"))?;
        let tree = syn::parse_file(&text).map_err(|error| format!("{file:?}: {error}"))?;
        sources.push((file, tree));
    }
    let mut facts = Facts::default();
    for (_, tree) in &sources {
        facts.visit_file(tree);
    }
    facts.close();

    let mut list = String::new();
    let mut number = 0;
    for (file, mut tree) in sources {
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
        if name == "testutil.rs" {
            continue;
        }
        let mut planter = Planter {
            facts: &facts,
            file: name.to_string(),
            functions: Vec::new(),
            this: None,
            number,
            list: &mut list,
        };
        planter.visit_file_mut(&mut tree);
        number = planter.number;
        let mut text = tree.into_token_stream().to_string();
        if name == "roce.rs" {
            text.push_str(CHOICE);
        }
        fs::write(&file, text).map_err(|error| format!("{file:?}: {error}"))?;
    }
    let at = Path::new(root).join("mutants.txt");
    fs::write(&at, list).map_err(|error| format!("{at:?}: {error}"))?;
    println!("{number} mutants");
    Ok(())
}

fn find(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The facts about the whole crate on which mutants depend.
#[derive(Default)]
struct Facts {
    /// Types that have a default.
    defaults: HashSet<String>,
    /// Names of functions that constants call.
    constant: HashSet<String>,
    /// The names that each `const fn` calls.
    calls: Vec<(String, HashSet<String>)>,
}

impl Facts {
    /// Adds the functions that functions in `constant` call.
    fn close(&mut self) {
        loop {
            let before = self.constant.len();
            for (name, calls) in &self.calls {
                if self.constant.contains(name) {
                    self.constant.extend(calls.iter().cloned());
                }
            }
            if self.constant.len() == before {
                return;
            }
        }
    }

    fn derives(&mut self, name: &syn::Ident, attributes: &[Attribute]) {
        let derives = attributes.iter().any(|attribute| {
            attribute.path().is_ident("derive") && text(attribute).contains("Default")
        });
        if derives {
            self.defaults.insert(name.to_string());
        }
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() {
            let name = signature.ident.to_string();
            self.calls.push((name, Words::of(block)));
        }
    }
}

impl<'ast> Visit<'ast> for Facts {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(item) if item.generics.params.is_empty() => {
                self.derives(&item.ident, &item.attrs);
            }
            Item::Enum(item) => self.derives(&item.ident, &item.attrs),
            Item::Impl(item) => {
                let is_default = item
                    .trait_
                    .as_ref()
                    .is_some_and(|(_, path, _)| path.is_ident("Default"));
                if let (true, Some(name)) = (is_default, name_of(&item.self_ty)) {
                    self.defaults.insert(name);
                }
            }
            Item::Const(item) => self.constant.extend(Words::of(&item.expr)),
            Item::Static(item) => self.constant.extend(Words::of(&item.expr)),
            // A macro may do anything with its words.
            Item::Macro(item) => self.constant.extend(Words::of(&item.mac.tokens)),
            _ => {}
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant.extend(Words::of(&item.expr));
    }

    fn visit_expr_const(&mut self, block: &'ast syn::ExprConst) {
        self.constant.extend(Words::of(&block.block));
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.function(&function.sig, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.function(&function.sig, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }
}

/// All identifiers of a piece of code.
struct Words(HashSet<String>);

impl Words {
    fn of(code: &impl ToTokens) -> HashSet<String> {
        let mut words = Words(HashSet::new());
        words.collect(code.to_token_stream());
        words.0
    }

    fn collect(&mut self, tokens: proc_macro2::TokenStream) {
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(word) => {
                    self.0.insert(word.to_string());
                }
                proc_macro2::TokenTree::Group(group) => self.collect(group.stream()),
                _ => {}
            }
        }
    }
}

struct Planter<'a> {
    facts: &'a Facts,
    file: String,
    functions: Vec<String>,
    /// The type of the `impl`.
    this: Option<String>,
    number: u32,
    list: &'a mut String,
}

impl Planter<'_> {
    /// Lists a mutant, and returns the condition under which it is run.
    fn add(&mut self, at: proc_macro2::Span, what: &str) -> Expr {
        let (number, start) = (self.number, at.start());
        self.number += 1;
        let function = self.functions.join("::");
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!(
            "{number}\t{}:{}:{}\t{function}\t{what}\n",
            self.file, start.line, start.column
        );
        self.list.push_str(&line);
        parse_quote!(crate::__mutant(#number))
    }

    /// Plants the mutants of a function, and those in it.
    fn function(&mut self, signature: &mut Signature, block: &mut Block) {
        let name = signature.ident.to_string();
        if signature.constness.is_some() && self.facts.constant.contains(&name) {
            return;
        }
        signature.constness = None;
        let full = match &self.this {
            Some(this) => format!("{this}::{name}"),
            None => name,
        };
        self.functions.push(full);
        let own = text(block);
        visit_mut::visit_block_mut(self, block);
        let values = values::of(
            &signature.output,
            &self.facts.defaults,
            self.this.as_deref(),
        );
        for value in values.into_iter().rev() {
            let body = value.as_ref().map(text).unwrap_or_default();
            if own == format!("{{ {body} }}") || block.stmts.is_empty() {
                continue;
            }
            let shown = if body.is_empty() { "()" } else { &body };
            let chosen = self.add(signature.ident.span(), &format!("returns {shown}"));
            block
                .stmts
                .insert(0, parse_quote!(if #chosen { return #value; }));
        }
        self.functions.pop();
    }
}

impl VisitMut for Planter<'_> {
    fn visit_item_mut(&mut self, item: &mut Item) {
        match item {
            Item::Mod(item) if is_test(&item.attrs) => {}
            Item::Const(_) | Item::Static(_) | Item::Enum(_) | Item::Struct(_) => {}
            Item::Impl(item) => {
                let of_trait = item.trait_.as_ref().map(|(_, path, _)| text(path));
                if matches!(of_trait.as_deref(), Some("Default" | "fmt :: Debug")) {
                    return;
                }
                let before = std::mem::replace(&mut self.this, name_of(&item.self_ty));
                visit_mut::visit_item_impl_mut(self, item);
                self.this = before;
            }
            _ => visit_mut::visit_item_mut(self, item),
        }
    }

    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}

    fn visit_type_mut(&mut self, _: &mut Type) {}

    fn visit_pat_mut(&mut self, _: &mut Pat) {}

    fn visit_expr_const_mut(&mut self, _: &mut syn::ExprConst) {}

    fn visit_expr_repeat_mut(&mut self, repeat: &mut syn::ExprRepeat) {
        self.visit_expr_mut(&mut repeat.expr);
    }

    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        if !is_test(&function.attrs) {
            self.function(&mut function.sig, &mut function.block);
        }
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut ImplItemFn) {
        if !is_test(&function.attrs) {
            self.function(&mut function.sig, &mut function.block);
        }
    }

    /// Leaves a statement out.
    fn visit_stmt_mut(&mut self, stmt: &mut Stmt) {
        let own = text(stmt);
        let span = stmt.span();
        visit_mut::visit_stmt_mut(self, stmt);
        let Stmt::Expr(expr, Some(_)) = &stmt else {
            return;
        };
        let may_go = match expr {
            // An assignment to a plain name may be its initialisation.
            Expr::Assign(assign) => !matches!(*assign.left, Expr::Path(_)),
            Expr::MethodCall(_) | Expr::Call(_) => true,
            // `+=` and the like, which has mutants of its own.
            Expr::Paren(_) => false,
            _ => false,
        };
        if may_go {
            let chosen = self.add(span, &format!("without: {own}"));
            *stmt = parse_quote!(if !#chosen { #stmt });
        }
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        let guard = arm
            .guard
            .as_ref()
            .map(|(_, guard)| (text(guard), guard.span()));
        visit_mut::visit_arm_mut(self, arm);
        if let (Some((own, span)), Some((_, guard))) = (guard, &mut arm.guard) {
            let never = self.add(span, &format!("guard {own} is false"));
            let always = self.add(span, &format!("guard {own} is true"));
            **guard = parse_quote!((#always || (#guard)) && !#never);
        }
    }

    fn visit_expr_match_mut(&mut self, expr: &mut syn::ExprMatch) {
        visit_mut::visit_expr_match_mut(self, expr);
        let has_rest = expr
            .arms
            .last()
            .is_some_and(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
        if !has_rest {
            return;
        }
        let last = expr.arms.len() - 1;
        for arm in &mut expr.arms[..last] {
            if arm.guard.is_none() {
                let gone = self.add(arm.pat.span(), &format!("without arm {}", text(&arm.pat)));
                arm.guard = Some((Default::default(), parse_quote!(!#gone)));
            }
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let own = expr.clone();
        visit_mut::visit_expr_mut(self, expr);
        match own {
            Expr::Binary(own) => {
                for op in operators::binary(&own.op) {
                    let what = format!("{} becomes {}", text(&own.op), text(&op));
                    let chosen = self.add(own.op.span(), &what);
                    let (left, right) = (&own.left, &own.right);
                    let other = quote!(#left #op #right);
                    *expr = parse_quote!((if #chosen { #other } else { #expr }));
                }
            }
            Expr::Unary(own) if operators::unary(&own.op) => {
                let chosen = self.add(own.op.span(), &format!("without {}", text(&own.op)));
                let operand = &own.expr;
                *expr = parse_quote!((if #chosen { #operand } else { #expr }));
            }
            Expr::MethodCall(own) => {
                let name = own.method.to_string();
                let Some(method) = operators::method(&name, own.args.len()) else {
                    return;
                };
                let chosen = self.add(own.method.span(), &format!("{name} becomes {method}"));
                let mut other = own;
                other.method = syn::Ident::new(method, other.method.span());
                *expr = parse_quote!((if #chosen { #other } else { #expr }));
            }
            _ => {}
        }
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes
        .iter()
        .any(|attribute| Words::of(attribute).contains("test"))
}

/// Returns the name of a type.
fn name_of(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        _ => None,
    }
}

fn text(code: &impl ToTokens) -> String {
    code.to_token_stream().to_string()
}
