//! Small lists of words for [`super::fake`].

/// First names.
pub const FIRST_NAMES: &[&str] = &[
    "Ada", "Amir", "Ana", "Anton", "Aya", "Ben", "Carla", "Chen", "Clara", "Dario", "Elif", "Emil",
    "Eva", "Farid", "Greta", "Hana", "Hugo", "Ines", "Ivan", "Jana", "Jonas", "Kofi", "Lara",
    "Leon", "Lin", "Mara", "Milo", "Nadia", "Nils", "Omar", "Paula", "Pia", "Rafael", "Rosa",
    "Samir", "Sara", "Tariq", "Tom", "Vera", "Yuki",
];

/// Last names.
pub const LAST_NAMES: &[&str] = &[
    "Abbott", "Baker", "Berg", "Castro", "Costa", "Diaz", "Eriksen", "Farah", "Fischer", "Garcia",
    "Haas", "Ito", "Jansen", "Kaya", "Khan", "Kowal", "Larsen", "Lopez", "Marino", "Meyer", "Mori",
    "Nguyen", "Novak", "Okoye", "Olsen", "Park", "Petrov", "Ricci", "Rossi", "Santos", "Sato",
    "Silva", "Singh", "Smith", "Suarez", "Tanaka", "Vogel", "Wagner", "Weber", "Young",
];

/// Cities.
pub const CITIES: &[&str] = &[
    "Accra",
    "Amsterdam",
    "Athens",
    "Bogota",
    "Boston",
    "Cairo",
    "Chicago",
    "Delhi",
    "Dublin",
    "Geneva",
    "Hanoi",
    "Helsinki",
    "Istanbul",
    "Jakarta",
    "Kyoto",
    "Lagos",
    "Lima",
    "Lisbon",
    "Madrid",
    "Melbourne",
    "Montreal",
    "Munich",
    "Nairobi",
    "Oslo",
    "Paris",
    "Prague",
    "Quito",
    "Seoul",
    "Toronto",
    "Vienna",
];

/// Countries.
pub const COUNTRIES: &[&str] = &[
    "Argentina",
    "Australia",
    "Austria",
    "Brazil",
    "Canada",
    "Chile",
    "Egypt",
    "Finland",
    "France",
    "Germany",
    "Ghana",
    "Greece",
    "India",
    "Indonesia",
    "Italy",
    "Japan",
    "Kenya",
    "Mexico",
    "Norway",
    "Peru",
    "Poland",
    "Portugal",
    "Spain",
    "Sweden",
    "Turkey",
    "Vietnam",
];

/// What streets are called, behind a name.
pub const STREETS: &[&str] =
    &["Alley", "Avenue", "Lane", "Place", "Road", "Square", "Street", "Way"];

/// What companies are called, behind a name.
pub const TRADES: &[&str] =
    &["and Sons", "Foods", "Group", "Labs", "Logistics", "Motors", "Systems", "Works"];

/// Things that are sold.
pub const PRODUCTS: &[&str] = &[
    "Copper Lamp",
    "Cotton Shirt",
    "Garden Chair",
    "Glass Bowl",
    "Leather Bag",
    "Oak Table",
    "Paper Kite",
    "Rubber Boots",
    "Silk Scarf",
    "Steel Knife",
    "Stone Mug",
    "Wool Hat",
];

/// Colors.
pub const COLORS: &[&str] = &[
    "black", "blue", "brown", "gray", "green", "orange", "pink", "purple", "red", "white", "yellow",
];

/// Words of no meaning.
pub const LOREM: &[&str] = &[
    "amet", "aqua", "arbor", "caelum", "dies", "dolor", "flumen", "hora", "ignis", "ipsum",
    "lorem", "luna", "mare", "mons", "nox", "pax", "sit", "sol", "stella", "terra", "umbra",
    "ventus", "via", "vita",
];

/// Domains that are kept for examples.
pub const DOMAINS: &[&str] = &["example.com", "example.net", "example.org", "mail.example.com"];
