//! Reading `.proto` files, and the sets of descriptors that `protoc` makes of them.
//!
//! Imports are looked for in the folder of the file and in those above it, as far as files may be
//! read: what `protoc` calls the path of imports is the folder that they start from.

use std::path::{Path, PathBuf};

use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use protox::prost_reflect::{
    self as reflect, Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor,
    MessageDescriptor, Syntax, Value,
};
use thalweg_core::{Error, Result};

use super::types::{EnumType, FieldType, Kind, MessageType, Scalar, Shape, Types};

/// No file of declarations is longer.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The types of a file, and the place of the message with this name in [`Types::messages`].
///
/// # Errors
/// If the file cannot be read, or has no such message.
pub fn load(file: &Path, allowed_roots: &[PathBuf], name: &str) -> Result<(Types, usize)> {
    let in_file = |error: Error| error.in_file(file.display().to_string());
    let pool = match file.extension().is_some_and(|extension| extension == "proto") {
        true => compiled(file, allowed_roots),
        false => described(file),
    };
    let pool = pool.map_err(in_file)?;
    let message = pool.all_messages().position(|message| is_named(&message, name));
    let message = message.ok_or_else(|| in_file(unknown(&pool, name)))?;
    let place = |descriptor: &MessageDescriptor| pool.all_messages().position(|m| m == *descriptor);
    let enum_place = |descriptor: &EnumDescriptor| pool.all_enums().position(|e| e == *descriptor);
    let places = Places { message: &place, enumeration: &enum_place };
    let messages = pool.all_messages().map(|message| places.message_type(&message));
    let types = Types {
        messages: messages.collect::<Result<_>>()?,
        enums: pool.all_enums().map(|descriptor| enum_type(&descriptor)).collect(),
    };
    Ok((types, message))
}

fn compiled(file: &Path, allowed_roots: &[PathBuf]) -> Result<DescriptorPool> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    let roots = allowed_roots.iter().filter_map(|root| root.canonicalize().ok()).collect();
    let mut resolver = ChainFileResolver::new();
    resolver.add(Imports { folder: folder.to_owned(), roots });
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    let name = file.file_name().unwrap_or_default();
    let opened = compiler.open_file(name).map(|_| ());
    opened.map_err(|error| {
        let place = error.file().map(|name| format!("{name}: ")).unwrap_or_default();
        Error::user(format!("{place}{error}"))
            .hint("imports start from the file's folder, or from one above it that may be read")
    })?;
    Ok(compiler.descriptor_pool())
}

fn described(file: &Path) -> Result<DescriptorPool> {
    check_length(file).map_err(Error::user)?;
    let bytes = std::fs::read(file).map_err(|e| Error::io(format!("cannot read: {e}")))?;
    DescriptorPool::decode(bytes.as_slice()).map_err(|error| {
        Error::user(format!("this is no set of descriptors: {error}")).hint(
            "make one with protoc --include_imports --descriptor_set_out=FILE, or name a file \
             that ends with .proto",
        )
    })
}

fn check_length(file: &Path) -> Result<(), String> {
    match file.metadata() {
        Ok(metadata) if metadata.is_file() && metadata.len() <= FILE_BYTES_MAX => Ok(()),
        Ok(_) => Err("it is no file, or longer than 64 MiB".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Finds files by the names that imports have.
struct Imports {
    folder: PathBuf,
    roots: Vec<PathBuf>,
}

impl FileResolver for Imports {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        let candidates = self.folder.ancestors().map(|folder| folder.join(name));
        let candidates = candidates.filter_map(|path| path.canonicalize().ok());
        let mut readable =
            candidates.filter(|path| self.roots.iter().any(|root| path.starts_with(root)));
        let path = readable.next().ok_or_else(|| protox::Error::file_not_found(name))?;
        check_length(&path).map_err(protox::Error::new)?;
        File::open(name, &path)
    }
}

fn unknown(pool: &DescriptorPool, name: &str) -> Error {
    let is_googles = |message: &MessageDescriptor| message.package_name() == "google.protobuf";
    let own = pool.all_messages().filter(|message| !message.is_map_entry() && !is_googles(message));
    let names: Vec<String> = own.map(|message| java_name(&message)).take(20).collect();
    Error::plan(format!("the file has no message '{name}'")).hint(match names.is_empty() {
        true => "it has no message".to_owned(),
        false => format!("it has {}", names.join(", ")),
    })
}

/// A message is named by its class of Java, as Flink asks for, or as `.proto` files name it.
fn is_named(message: &MessageDescriptor, name: &str) -> bool {
    !message.is_map_entry() && (message.full_name() == name || java_name(message) == name)
}

/// The class that Java has for a message: `package.Outer$Message$Nested`.
fn java_name(message: &MessageDescriptor) -> String {
    let file = message.parent_file();
    let options = file.file_descriptor_proto().options.as_ref();
    let package = options.and_then(|options| options.java_package.as_deref());
    let mut classes = vec![message.name().to_owned()];
    let mut outer = message.parent_message();
    while let Some(message) = outer {
        classes.push(message.name().to_owned());
        outer = message.parent_message();
    }
    if !options.is_some_and(|options| options.java_multiple_files()) {
        classes.push(outer_class(&file));
    }
    classes.reverse();
    match package.unwrap_or(file.package_name()) {
        "" => classes.join("$"),
        package => format!("{package}.{}", classes.join("$")),
    }
}

/// The class of Java in which the messages of a file are, where they have no files of their own.
fn outer_class(file: &FileDescriptor) -> String {
    let options = file.file_descriptor_proto().options.as_ref();
    if let Some(name) = options.and_then(|options| options.java_outer_classname.as_deref()) {
        return name.to_owned();
    }
    let name = file.name().rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".proto").unwrap_or(name);
    let (mut class, mut is_first) = (String::new(), true);
    for character in name.chars() {
        match character {
            'a'..='z' if is_first => class.push(character.to_ascii_uppercase()),
            'a'..='z' | 'A'..='Z' | '0'..='9' => class.push(character),
            _ => {}
        }
        is_first = !character.is_ascii_alphabetic();
    }
    let messages = file.parent_pool().all_messages().filter(|m| m.parent_file() == *file);
    let enums = file.parent_pool().all_enums().filter(|e| e.parent_file() == *file);
    let is_taken = messages.into_iter().any(|message| message.name() == class)
        || enums.into_iter().any(|descriptor| descriptor.name() == class)
        || file.services().any(|service| service.name() == class);
    if is_taken { class + "OuterClass" } else { class }
}

/// The places of types among all of them.
struct Places<'p> {
    message: &'p dyn Fn(&MessageDescriptor) -> Option<usize>,
    enumeration: &'p dyn Fn(&EnumDescriptor) -> Option<usize>,
}

impl Places<'_> {
    fn message_type(&self, message: &MessageDescriptor) -> Result<MessageType> {
        let fields = message.fields().map(|field| self.field_type(&field));
        let mut fields = fields.collect::<Result<Vec<_>>>()?;
        fields.sort_by_key(|field| field.number);
        let has_implicit_values = message.parent_file().syntax() == Syntax::Proto3;
        Ok(MessageType { name: message.full_name().to_owned(), has_implicit_values, fields })
    }

    fn field_type(&self, field: &FieldDescriptor) -> Result<FieldType> {
        let kind = self.kind(field).ok_or_else(|| Error::internal("a type without a place"))?;
        let shape = match (field.is_map(), field.is_list()) {
            (true, _) => Shape::Map,
            (false, true) => Shape::List,
            (false, false) => Shape::Single,
        };
        Ok(FieldType {
            name: field.name().to_owned(),
            number: field.number(),
            kind,
            shape,
            has_presence: field.supports_presence(),
            is_required: field.cardinality() == Cardinality::Required,
            is_packed: field.is_packed(),
            oneof: field.containing_oneof().map(|oneof| oneof_number(field, &oneof)),
            default: match shape {
                Shape::Single => default_value(field.default_value()),
                Shape::List | Shape::Map => Scalar::Number(0),
            },
        })
    }

    fn kind(&self, field: &FieldDescriptor) -> Option<Kind> {
        Some(match field.kind() {
            reflect::Kind::Bool => Kind::Bool,
            reflect::Kind::Int32 => Kind::Int32,
            reflect::Kind::Uint32 => Kind::Uint32,
            reflect::Kind::Sint32 => Kind::Sint32,
            reflect::Kind::Fixed32 | reflect::Kind::Sfixed32 => Kind::Fixed32,
            reflect::Kind::Int64 | reflect::Kind::Uint64 => Kind::Int64,
            reflect::Kind::Sint64 => Kind::Sint64,
            reflect::Kind::Fixed64 | reflect::Kind::Sfixed64 => Kind::Fixed64,
            reflect::Kind::Float => Kind::Float,
            reflect::Kind::Double => Kind::Double,
            reflect::Kind::String => Kind::String,
            reflect::Kind::Bytes => Kind::Bytes,
            reflect::Kind::Enum(descriptor) => Kind::Enum((self.enumeration)(&descriptor)?),
            reflect::Kind::Message(_) if field.is_group() => Kind::Group,
            reflect::Kind::Message(descriptor) => Kind::Message((self.message)(&descriptor)?),
        })
    }
}

/// A number that no other group of fields of the message has.
fn oneof_number(field: &FieldDescriptor, oneof: &reflect::OneofDescriptor) -> usize {
    let message = field.parent_message();
    let mut all = message.oneofs();
    all.position(|other| other == *oneof).unwrap_or(usize::MAX)
}

fn default_value(value: Value) -> Scalar {
    match value {
        Value::Bool(value) => Scalar::Number(u64::from(value)),
        Value::I32(value) | Value::EnumNumber(value) => Scalar::Number(i64::from(value) as u64),
        Value::U32(value) => Scalar::Number(u64::from(value)),
        Value::I64(value) => Scalar::Number(value as u64),
        Value::U64(value) => Scalar::Number(value),
        Value::F32(value) => Scalar::Number(u64::from(value.to_bits())),
        Value::F64(value) => Scalar::Number(value.to_bits()),
        Value::String(value) => Scalar::Bytes(value.into_bytes()),
        Value::Bytes(value) => Scalar::Bytes(value.to_vec()),
        Value::Message(_) | Value::List(_) | Value::Map(_) => Scalar::Number(0),
    }
}

fn enum_type(descriptor: &EnumDescriptor) -> EnumType {
    let mut known = EnumType {
        first: descriptor.values().next().map_or(0, |value| value.number()),
        is_closed: descriptor.parent_file().syntax() == Syntax::Proto2,
        ..EnumType::default()
    };
    for value in descriptor.values() {
        known.names.entry(value.number()).or_insert_with(|| value.name().to_owned());
        known.numbers.insert(value.name().to_owned(), value.number());
    }
    known
}
